"""The outputs that are worth least: where to look first."""

from collections.abc import Sequence
from pathlib import Path

from regard.data.jsonl import json_line
from regard.errors import UserError, naming
from regard.evaluation.metrics import METRICS, rewards
from regard.evaluation.score import References, paired
from regard.recipe import choose

Worst = tuple[float, str, str, str]  # what it is worth from 0 to 1, source, output, reference or references
BETWEEN = " ||| "  # several references
BLANKS = {ord(sign): " " for sign in "\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}  # what would end a column or a line


def worst(metric_name: str, sources: Sequence[str], outputs: Sequence[str], references: References, number: int) -> list[Worst]:
    """The rows whose output is worth least by this metric, beside the reference it is nearest to. Of equal ones that with more
    wrong characters comes first."""
    choose(METRICS, metric_name, "metric")
    if metric_name not in rewards():
        raise UserError(f"the metric {metric_name} does not judge single outputs; take one of {', '.join(rewards())}")
    pairs = paired(outputs, references)
    values = [
        tuple(max(rewards()[name](output, one) for one in right) for name in (metric_name, "cer")) for output, right in pairs
    ]
    least = sorted(range(len(pairs)), key=values.__getitem__)[:number]
    return [(values[row][0], sources[row], pairs[row][0], BETWEEN.join(pairs[row][1])) for row in least]


def write_worst(path: Path, rows: Sequence[Worst]) -> None:
    """A table with a header, in which every end of a line is a space; or, as .jsonl, texts as they are."""
    names = ("score", "source", "output", "reference")
    if ".jsonl" in path.suffixes:
        text = "".join(json_line(dict(zip(names, (round(row[0], 3), *row[1:]), strict=True))) for row in rows)
    else:
        lines = [names, *((f"{value:.3f}", *texts) for value, *texts in rows)]
        text = "".join("\t".join(cell.translate(BLANKS) for cell in line) + "\n" for line in lines)
    with naming(path):
        path.write_text(text, encoding="utf-8", errors="replace")
