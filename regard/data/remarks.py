"""What a person would want to know of a survey before training; and what rows are for, where they say so."""

from collections.abc import Callable
from typing import NamedTuple

from regard.data.survey import Survey

FEW_ROWS = 20  # that tell whether their targets are labels
NAME = 10  # words of a label, at most
MOST = 0.8  # of the rows: accuracy hardly tells whether the others are known


class Remark(NamedTuple):
    """Something to say of a survey where it holds."""

    holds: Callable[[Survey], bool]
    text: Callable[[Survey], str]


def looks_like_labels(found: Survey) -> bool:
    """Few values that come again and again, for many sources that do not hold them, and each of words of its own: what puts the
    same few words together in many ways is written. No numbers to be counted out."""
    target, rows = found.target, found.looked_at
    few = rows >= FEW_ROWS and 1 < target.distinct <= min(max(100, rows // 50), rows // 10) and target.words.longest <= NAME
    own = target.distinct <= 2 * target.vocabulary
    counted = target.numbers > 0.9 and target.distinct > 20
    return few and own and not counted and found.source.distinct > 5 * target.distinct and found.copied_words < 0.3


def looks_like_tags(found: Survey) -> bool:
    """As many words on both sides, few different ones in the target, and what stands in the same place tells most of them: in a
    sequence that is turned round or sorted it does not."""
    return few_for_many(found) and found.by_place > 0.4


def few_for_many(found: Survey) -> bool:
    few = found.target.vocabulary <= 200 and found.source.vocabulary > 5 * found.target.vocabulary
    return found.equal_words > 0.99 and found.source.words.mean > 2 and few


# What a person would want to know before training; none of it stops a run
REMARKS: dict[str, Remark] = {
    "bad rows": Remark(lambda found: found.bad > 0, lambda found: f"{found.bad:,} bad rows; the first: {found.faults[0]}"),
    "suspicious rows": Remark(
        lambda found: found.suspicious > 0,
        lambda found: f"{found.suspicious:,} rows look wrong, and are trained on all the same; the first: {found.suspects[0]}",
    ),
    "repeated rows": Remark(
        lambda found: found.repeated > 0.02,
        lambda found: f"{found.repeated:.0%} of the rows stand more than once: held-out scores will look better than they are",
    ),
    "one input, several outputs": Remark(
        lambda found: found.many_targets > 0.05 and not looks_like_labels(found.turned),
        lambda found: f"{found.many_targets:.0%} of the sources have several targets: no model can be right about all of them",
    ),
    "equal columns": Remark(
        lambda found: found.same > 0.5,
        lambda found: f"source and target are equal in {found.same:.0%} of the rows: are these the right columns?",
    ),
    "one target": Remark(
        lambda found: found.looked_at > 1 and found.target.distinct == 1,
        lambda found: "all targets are the same: there is nothing to learn; are these the right columns?",
    ),
    "labels": Remark(
        looks_like_labels,
        lambda found: f"the targets are {found.target.distinct} different values: labels (docs/tasks.md)",
    ),
    "one label for nearly all": Remark(
        lambda found: looks_like_labels(found) and found.target.commonest > MOST,
        lambda found: f"one label is that of {found.target.commonest:.0%} of the rows, as high an accuracy as that of a model "
        "that gives no other: look at macro F1, and at model.class_weights=balanced where rare labels are to be found",
    ),
    "tags": Remark(
        few_for_many,
        lambda found: "both sides have as many words in every row, and the target has few different ones: tags "
        f"({found.by_place:.0%} of them told by the word in the same place; docs/tasks.md)",
    ),
    "swapped columns": Remark(
        lambda found: found.source.distinct <= found.looked_at // 10
        and found.target.distinct > 5 * found.source.distinct
        and not looks_like_labels(found.turned),
        lambda found: f"{found.source.distinct} different sources for {found.target.distinct:,} different targets: "
        "are these the right columns?",
    ),
    "numbers": Remark(
        lambda found: found.target.numbers > 0.9 and found.target.distinct > 20,
        lambda found: "the targets are numbers, which are written out as text here (this is no regression): a near miss is as "
        "wrong as any other",
    ),
    "few rows": Remark(
        lambda found: found.rows < 50,
        lambda found: f"{found.rows} rows are hardly enough to learn anything but the rows themselves",
    ),
}  # fmt: skip


def remarks(found: Survey) -> list[str]:
    return [remark.text(found) for remark in REMARKS.values() if remark.holds(found)]
