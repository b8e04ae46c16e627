"""What kind of model rows are for, where they say so: one text, images, labels, tags, or, of everything else, a target for
each source."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from regard.choices.case import Case
from regard.choices.labels import LABEL_CHOICES
from regard.choices.pictures import BASE, IMAGE_CHOICES, IMAGE_LABEL_CHOICES
from regard.choices.rules import CHOICES, Rule
from regard.choices.single_text import TEXT_CHOICES
from regard.data.readers import columns_of
from regard.data.remarks import looks_like_labels, looks_like_tags
from regard.data.survey import ColumnFacts
from regard.recipe import Pairs, parse


class Task(NamedTuple):
    """A kind of model: the rows that are for it, the recipe that it begins with, and what is chosen for it."""

    fits: Callable[[Case], bool]
    reason: Callable[[Case], str]
    base: str
    rules: Mapping[str, Rule]
    source: str = "source"  # the column of the files that it reads
    target: str = "target"  # and writes
    writes: str = "target"  # as it calls it
    of_images: bool = False

    def columns(self, files: Mapping[str, Any]) -> dict[str, Any]:
        """These files with the columns named as the model has them."""
        if not files or (self.source, self.writes) == ("source", "target"):
            return dict(files)
        pairs = parse(Pairs, files)
        given = {name: place if isinstance(place, int) else str(place) for name, place in columns_of(pairs).items()}
        given = {"source": given[self.source], self.writes: given[self.writes if self.writes in given else self.target]}
        if pairs.pairs is not None:
            return {"pairs": str(pairs.pairs), "columns": given}
        return {"source": given["source"], "columns": {self.writes: given[self.writes]}}


def as_pairs(files: Mapping[str, Any], writes: str) -> dict[str, Any]:
    """Files whose column has been named as a label or tags, as files of sources and targets."""
    pairs = parse(Pairs, files)
    source, target = pairs.named["source"], pairs.named[writes]
    if pairs.pairs is None:
        return {"source": str(source), "target": str(target)}
    return {"pairs": str(pairs.pairs), "source_column": source, "target_column": target}


def tell_labels(values: ColumnFacts, where: str) -> str:
    return f"the {where} is one of {values.distinct} values, each of which comes again and again: a label for each text"


def leaves_words_whole(case: Case) -> bool:
    """The tokenizer that the user asked for, if there is one: tags go with words."""
    return bool(case.chosen.get("data.tokenizer", {}).get("kind", "word") == "word")


def tell_tags(case: Case) -> str:
    return (
        f"both sides have as many words, the target has {case.found.target.vocabulary} different ones, and words in the same "
        f"places tell {case.found.by_place:.0%} of what the most frequent one does not: a tag for each word"
    )


# The first that fits
TASKS: dict[str, Task] = {
    "one text": Task(
        lambda case: case.found.alone,
        lambda case: f"one text alone ({case.found.rows:,} lines): a language model of its characters",
        "characters", TEXT_CHOICES,
    ),
    "classifier of images": Task(
        lambda case: bool(case.images) and looks_like_labels(case.found), lambda case: tell_labels(case.found.target, "target"),
        "classifier", IMAGE_LABEL_CHOICES, writes="label", of_images=True,
    ),
    "images": Task(lambda case: bool(case.images), lambda case: "", BASE, IMAGE_CHOICES, of_images=True),
    "classifier": Task(
        lambda case: looks_like_labels(case.found), lambda case: tell_labels(case.found.target, "target"), "classifier",
        LABEL_CHOICES, writes="label",
    ),
    "classifier, label first": Task(
        lambda case: looks_like_labels(case.found.turned), lambda case: tell_labels(case.found.source, "first column"),
        "classifier", LABEL_CHOICES, source="target", target="source", writes="label",
    ),
    "tagger": Task(
        lambda case: looks_like_tags(case.found) and leaves_words_whole(case), tell_tags, "tagger", LABEL_CHOICES,
        writes="tags",
    ),
    "sequence to sequence": Task(lambda case: True, lambda case: "", "bahdanau2015-small", CHOICES),
}  # fmt: skip
