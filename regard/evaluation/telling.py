"""What people are told of a model while and after it is trained: samples, scores with intervals, the worst outputs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.decoding.load import can_give
from regard.evaluation.evaluate import Evidence, Question, evidence_of
from regard.evaluation.intervals import with_interval
from regard.evaluation.metrics import METRICS, Score, rewards
from regard.evaluation.worst import worst, write_worst

Say = Callable[[str], None]
SAMPLES, SHOWN = 3, 80  # outputs shown at a validation; characters of each
WORST = 50  # outputs that worst.tsv lists


def tell_samples(rows: Sequence[Any], evidence: Mapping[str, Any], say: Say) -> None:
    """The first rows that are validated on: input, output, reference."""
    outputs = evidence["outputs"][0] if "outputs" in evidence else ()
    for (source, *_, reference), output in zip(rows[:SAMPLES], outputs, strict=False):
        say(
            f"    {shorten(source)}  ->  {shorten(output)}{'' if output == reference else f'   (wanted: {shorten(reference)})'}"
        )


def shorten(text: str) -> str:
    told = text if len(text) <= SHOWN else f"{text[:SHOWN]} ..."
    return told.replace("\n", "\\n")


def tell_test(name: str, question: Question, all_rows: int, by: str, say: Say) -> None:
    """Of the finished model, on rows that had no part in its training."""
    say(f"on {of_all(question, all_rows)} of the test set {name!r}, which had no part in the training:")
    tell_each(intervals(question, by)[0], say)


def intervals(question: Question, by: str) -> tuple[list[Score], dict[str, Evidence]]:
    """The metric that decided, and what everybody understands."""
    use = type(question.trained)
    told = (by, "accuracy", "exact", *(["pointing"] if question.boxes and question.trained.has_attention else []), "loss")
    metrics = {name: METRICS[name] for name in told if can_give(use, METRICS[name].needs)}
    evidence = evidence_of(question, metrics)
    return [with_interval(metric, *evidence[metric.needs]) for metric in metrics.values()], evidence


def tell_each(scores: Sequence[Score], say: Say) -> None:
    for score in scores:
        between = "" if score.interval is None else f" [{score.interval[0]:.2f}, {score.interval[1]:.2f}]"
        say(f"    {score.name} {score.value:.2f}{between}")


def of_all(question: Question, all_rows: int) -> str:
    """So many rows, or the first so many where the time was too short for more."""
    rows = len(question.pairs)
    if rows == all_rows:
        return f"{rows:,} rows"
    return f"the first {rows:,} of {all_rows:,} rows (the time is up; `regard evaluate` scores all)"


def tell_scores(question: Question, all_rows: int, by: str, directory: Path, say: Say) -> None:
    """Of the finished model, as it will be used, on the rows it was validated on; the worst outputs are kept in a file."""
    rows, (scores, evidence) = question.pairs, intervals(question, by)
    say(
        f"on {of_all(question, all_rows)} that were not trained on but chose the checkpoints, "
        "with 95 % intervals (by resampling rows):"
    )
    tell_each(scores, say)
    if "outputs" in evidence:
        judge = by if by in rewards() else "exact"
        write_worst(directory / "worst.tsv", worst(judge, [row[0] for row in rows], *evidence["outputs"], WORST))
        say(f"the worst outputs are in {directory / 'worst.tsv'}")
