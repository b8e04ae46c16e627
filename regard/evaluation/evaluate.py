"""How good a trained model is on a test set."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from regard.data.fields import Field, Text
from regard.data.links import Links
from regard.data.matching import as_faults, check_values
from regard.data.readers import BadRows, read_rows
from regard.decoding.load import can_give
from regard.decoding.reading import Pair
from regard.errors import UserError
from regard.evaluation.metrics import METRICS, Score
from regard.recipe import Decoding, Pairs, choose

LENGTHS = (5, 10, 15, 20, 30, 40, 60)  # source words, for scores by length


def read_test(files: Pairs, fields: Mapping[str, Field]) -> list[Any]:
    """All rows of a test set, a value for each column; a bad row always stops, for a score over fewer rows is another score."""
    bad, found = BadRows("stop", advice="mend the file: a score over fewer rows would be another score"), list[Any]()
    if missing := [name for name in fields if name not in files.named]:
        raise UserError(f"a test set of this model has {' and '.join(fields)}; this one has no {' and no '.join(missing)}")
    for rows in read_rows(files):
        bad.add(rows.faults)
        values = {name: field.located(rows.columns[name], files.file_of(name).parent) for name, field in fields.items()}
        if not all(isinstance(field, Text) for field in fields.values()):  # every text can be read
            bad.add(as_faults(files, rows, check_values(fields, values)[1]))
        found += list(zip(*values.values(), strict=True))
    return found


class Question(NamedTuple):
    """What a model is judged on."""

    trained: Any  # of the class that fits the shape of its model
    pairs: Sequence[Any]  # rows: a value for each column, of which the last is the truth
    gold: Sequence[Links] | None = None  # the true alignments of the pairs
    decoding: Decoding | None = None

    @property
    def sources(self) -> list[str]:
        return [row[0] for row in self.pairs]

    @property
    def references(self) -> list[str]:
        return [row[-1] for row in self.pairs]

    def unread(self) -> dict[int, str]:
        """The rows that are too long for the model."""
        found: dict[int, str] = self.trained.rows_too_long(self.pairs)
        return found


Evidence = tuple[Sequence[Any], Sequence[Any]]  # what the model gave, and what is true


def outputs_of(question: Question) -> Evidence:
    """What it writes; a source that is too long has an empty output, which counts."""
    trained = question.trained
    found = trained.answer(question.sources, trained.settings(question.decoding)).results
    return [hypotheses[0].text if hypotheses else "" for hypotheses in found], question.references


def likelihood_of(question: Question) -> Evidence:
    """How probable it finds the references; not known of pairs that are too long."""
    unread = question.unread()
    known = [pair for row, pair in enumerate(question.pairs) if row not in unread]
    return question.trained.score(known), [row[-1] for row in known]


def labels_of(question: Question) -> Evidence:
    """How it labels; a row that is too long has no labels, which counts."""
    found = question.trained.predictions(question.sources).results
    split = question.trained.labels.split
    return [[] if one is None else one.labels for one in found], [split(truth) for truth in question.references]


def links_of(question: Question) -> Evidence:
    """Which words it links; none in pairs that are too long, which counts."""
    gold = question.gold or ()
    if len(gold) != len(question.pairs):
        raise UserError(f"{len(gold)} lines of gold alignments for {len(question.pairs)} pairs")
    unread = question.unread()
    pairs = [("", "") if row in unread else pair for row, pair in enumerate(question.pairs)]
    return [one.links for one in question.trained.align(pairs)], gold


# What metrics need, and how a model is asked for it: the text that it writes, how probable references are, words that it links
SOURCES: dict[str, Callable[[Question], Evidence]] = {
    "outputs": outputs_of,
    "likelihood": likelihood_of,
    "links": links_of,
    "labels": labels_of,
}


def measure(question: Question, names: Sequence[str]) -> tuple[dict[str, Score], dict[str, Evidence]]:
    """Scores by these metrics, and what they judge. What several of them need is asked of the model once."""
    metrics = {name: choose(METRICS, name, "metric") for name in names}
    needed = dict.fromkeys(metric.needs for metric in metrics.values())
    evidence = {needs: choose(SOURCES, needs, "need of a metric")(question) for needs in needed}
    return {name: metric(*evidence[metric.needs]) for name, metric in metrics.items()}, evidence


def evaluate(
    trained: Any, pairs: Sequence[Any], gold: Sequence[Links] | None = None, decoding: Decoding | None = None
) -> tuple[list[Score], list[str]]:
    """Every metric that applies, and the outputs they judge."""
    if gold is not None and len(gold) != len(pairs):
        raise UserError(f"{len(gold)} lines of gold alignments for {len(pairs)} pairs")
    known = {need for need in SOURCES if can_give(type(trained), need)}
    known -= set() if gold is not None and trained.has_attention else {"links"}
    names = [name for name, metric in METRICS.items() if metric.needs in known]
    scores, evidence = measure(Question(trained, pairs, gold, decoding), names)
    outputs = evidence["outputs"][0] if "outputs" in known else [" ".join(one) for one in evidence.get("labels", ((), ()))[0]]
    return list(scores.values()), list(outputs)


def by_length(pairs: Sequence[Pair], outputs: Sequence[str], metric: str = "bleu") -> list[tuple[str, int, Score]]:
    """The score of the outputs for sources of like length (in words), as the figures of Bahdanau and Luong show it."""
    groups: dict[int, list[int]] = {}
    for row, (source, _) in enumerate(pairs):
        words = len(source.split())
        groups.setdefault(next((end for end in LENGTHS if words <= end), 0), []).append(row)
    results = []
    for end in [*LENGTHS, 0]:
        if rows := groups.get(end):
            score = choose(METRICS, metric, "metric")([outputs[row] for row in rows], [pairs[row][1] for row in rows])
            results.append((f"up to {end} words" if end else f"over {LENGTHS[-1]} words", len(rows), score))
    return results
