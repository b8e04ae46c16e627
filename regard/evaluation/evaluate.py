"""How good a trained model is on a test set."""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.boxes import Boxes
from regard.data.fields import Field, Text, read_blocks
from regard.data.lines import read_lines
from regard.data.links import Links
from regard.data.matching import as_faults, check_values
from regard.data.readers import BadRows
from regard.decoding.load import can_give
from regard.decoding.reading import WORDS
from regard.errors import DataError, UserError
from regard.evaluation.intervals import with_interval
from regard.evaluation.metrics import METRICS, Metric, Score
from regard.evaluation.score import References
from regard.recipe import Decoding, Pairs, choose

LENGTHS = (5, 10, 15, 20, 30, 40, 60)  # source words, for scores by length


def read_test(files: Pairs, fields: Mapping[str, Field]) -> list[Any]:
    """All rows of a test set, a value for each column; a bad row always stops, for a score over fewer rows is another score."""
    bad, found = BadRows("stop", advice="mend the file: a score over fewer rows would be another score"), list[Any]()
    if missing := [name for name in fields if name not in files.named]:
        raise UserError(f"a test set of this model has {' and '.join(fields)}; this one has no {' and no '.join(missing)}")
    for rows in read_blocks(files, fields):
        bad.add(rows.faults)
        values = {name: field.located(rows.columns[name], files.file_of(name).parent) for name, field in fields.items()}
        if not all(isinstance(field, Text) for field in fields.values()):  # every text can be read
            bad.add(as_faults(files, rows, check_values(fields, values)[1]))
        found += list(zip(*values.values(), strict=True))
    return found


def read_references(files: Sequence[Path], rows: int) -> list[list[str]]:
    """Further references of each row: line n of every file is one of row n, and an empty line none."""
    return [[one for one in row if one.strip()] for row in zip(*(reference_lines(path, rows) for path in files), strict=True)]


def reference_lines(path: Path, rows: int) -> list[str]:
    blocks = list(read_lines(path))
    for line, problem in chain.from_iterable(block.problems.items() for block in blocks):
        raise DataError(f"{path}:{line}: {problem}")
    found = [text for block in blocks for text in block.texts]
    if len(found) != rows:
        raise DataError(
            f"{path}: {len(found)} lines of references for {rows} rows; give each row a line (an empty one for none)"
        )
    return found


Inputs = list[tuple[str, list[str]]]  # what a model is asked, and all that is right


def inputs_of(pairs: Sequence[Any], references: Sequence[Sequence[str]] = (), same_source: bool = False) -> Inputs:
    """Each row with its target and further references; of the same source, if asked for, one input with the targets of all."""
    if references and len(references) != len(pairs):
        raise UserError(f"further references of {len(references)} rows, for {len(pairs)} rows; give [] for a row without any")
    rows = [(row[0], [row[-1], *more]) for row, more in zip(pairs, references or repeat(()), strict=False)]
    if not same_source:
        return rows
    found = dict[str, dict[str, None]]()
    for source, right in rows:
        found.setdefault(source, {}).update(dict.fromkeys(right))
    return [(source, list(right)) for source, right in found.items()]


class Question(NamedTuple):
    """What a model is judged on."""

    trained: Any  # of the class that fits the shape of its model
    pairs: Sequence[Any]  # rows: a value for each column, of which the last is the truth
    gold: Sequence[Links] | None = None  # the true alignments of the pairs
    decoding: Decoding | None = None
    further: Sequence[Sequence[str]] = ()  # references of each row beside the last of its values
    same_source: bool = False  # whether rows of the same source are one input, and the targets of all are right
    boxes: Sequence[Boxes] | None = None  # in the images, of what words of the targets name

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
    """What it writes; a source that is too long has an empty output, which counts. References are texts where each input has
    one, and lists of texts where some have several."""
    trained, inputs = question.trained, inputs_of(question.pairs, question.further, question.same_source)
    found = trained.answer([source for source, _ in inputs], trained.settings(question.decoding)).results
    right: References = [several for _, several in inputs]
    if all(len(several) == 1 for several in right):
        right = [several[0] for several in right]
    return [hypotheses[0].text if hypotheses else "" for hypotheses in found], right


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
    return [one.links for one in question.trained.align(pairs, tokens=WORDS)], gold


def points_of(question: Question) -> Evidence:
    """Where in its image it looked for each word of the reference; nowhere in rows that are too long, which counts."""
    boxes = question.boxes or ()
    if len(boxes) != len(question.pairs):
        raise UserError(
            f"{len(boxes)} lines of boxes for {len(question.pairs)} rows: name their file in `boxes` of the test set"
        )
    unread = question.unread()
    known = iter(question.trained.points([pair for row, pair in enumerate(question.pairs) if row not in unread]))
    return [[] if row in unread else next(known) for row in range(len(question.pairs))], boxes


# What metrics need, and how a model is asked for it: the text that it writes, how probable references are, words that it links
SOURCES: dict[str, Callable[[Question], Evidence]] = {
    "outputs": outputs_of,
    "likelihood": likelihood_of,
    "text likelihood": likelihood_of,  # of references that are text, whose words and characters can be counted
    "links": links_of,
    "labels": labels_of,
    "boxes": points_of,
}


def evidence_of(question: Question, metrics: Mapping[str, Metric]) -> dict[str, Evidence]:
    """What several of them need is asked of the model once."""
    needed = {metric.needs: choose(SOURCES, metric.needs, "need of a metric") for metric in metrics.values()}
    found = {source: source(question) for source in dict.fromkeys(needed.values())}
    return {needs: found[source] for needs, source in needed.items()}


def measure(question: Question, names: Sequence[str]) -> tuple[dict[str, Score], dict[str, Evidence]]:
    """Scores by these metrics, and what they judge."""
    metrics = {name: choose(METRICS, name, "metric") for name in names}
    evidence = evidence_of(question, metrics)
    return {name: metric(*evidence[metric.needs]) for name, metric in metrics.items()}, evidence


def evaluate(
    trained: Any,
    pairs: Sequence[Any],
    gold: Sequence[Links] | None = None,
    decoding: Decoding | None = None,
    references: Sequence[Sequence[str]] = (),
    same_source: bool = False,
    names: Sequence[str] = (),
    boxes: Sequence[Boxes] | None = None,
) -> tuple[list[Score], list[str]]:
    """The usual metrics that apply, or those named, with their intervals; and the outputs they judge, one for each input."""
    if gold is not None and len(gold) != len(pairs):
        raise UserError(f"{len(gold)} lines of gold alignments for {len(pairs)} pairs")
    known = applicable(trained, gold is not None, boxes is not None)
    usual = [name for name, metric in known.items() if metric.usual]
    metrics = {name: named_metric(name, known) for name in dict.fromkeys(names or usual)}
    evidence = evidence_of(Question(trained, pairs, gold, decoding, references, same_source, boxes), metrics)
    outputs = (
        evidence["outputs"][0] if "outputs" in evidence else [" ".join(one) for one in evidence.get("labels", ((), ()))[0]]
    )
    return [with_interval(metric, *evidence[metric.needs]) for metric in metrics.values()], list(outputs)


def applicable(trained: Any, gold: bool = False, boxes: bool = False) -> dict[str, Metric]:
    """The metrics whose needs this model can give; alignments and places are judged only beside true ones."""
    asked = {"links": gold, "boxes": boxes}
    known = {need for need in SOURCES if can_give(type(trained), need)} - asked.keys()
    known |= {need for need, given in asked.items() if given and can_give(type(trained), need) and trained.has_attention}
    return {name: metric for name, metric in METRICS.items() if metric.needs in known}


def named_metric(name: str, known: Mapping[str, Metric]) -> Metric:
    metric = choose(METRICS, name, "metric")
    if name not in known:
        raise UserError(f"the metric {name} needs what this model or this test set does not give ({metric.needs})")
    return metric


def length_groups(sources: Sequence[str], ends: Sequence[int] = LENGTHS) -> dict[int, list[int]]:
    """The rows whose sources have up to so many words and more than the group before; under 0 what is longer than all."""
    groups: dict[int, list[int]] = {}
    for row, source in enumerate(sources):
        words = len(source.split())
        groups.setdefault(next((end for end in ends if words <= end), 0), []).append(row)
    return {end: groups[end] for end in [*ends, 0] if end in groups}


def by_length(inputs: Sequence[Any], outputs: Sequence[str], metric: str = "bleu") -> list[tuple[str, int, Score]]:
    """The score of the outputs for sources of like length (in words), as the figures of Bahdanau and Luong show it."""
    results = []
    for end, rows in length_groups([source for source, _ in inputs]).items():
        score = choose(METRICS, metric, "metric")([outputs[row] for row in rows], [inputs[row][1] for row in rows])
        results.append((f"up to {end} words" if end else f"over {LENGTHS[-1]} words", len(rows), score))
    return results
