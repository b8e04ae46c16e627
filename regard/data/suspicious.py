"""Rows that can be read but look wrong: text that was decoded wrongly, or sides that hardly belong together."""

import re
import statistics
from collections.abc import Callable, Sequence

Row = tuple[str, str]
FAR = 8  # times longer or shorter than usual beside its source
USUAL = 0.05  # the share of rows from which on this is nothing unusual
SHORT = 24  # characters; shorter texts may be anything
MOJIBAKE = re.compile("[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac")  # UTF-8 read as Latin-1 or Windows-1252


def suspicious_rows(rows: Sequence[Row]) -> list[tuple[int, str]]:
    """The places of rows that look wrong, each with its first problem."""
    usual = statistics.median(ratio(row) for row in rows)
    problems = {problem: [holds(row, usual) for row in rows] for problem, holds in PROBLEMS.items()}
    if sum(problems[UNUSUAL]) > USUAL * len(rows):  # lengths that differ so in many rows are of no pair's making
        del problems[UNUSUAL]
    found = [[problem for problem, holds in problems.items() if holds[place]] for place in range(len(rows))]
    return [(place, problems[0]) for place, problems in enumerate(found) if problems]


def ratio(row: Row) -> float:
    return (len(row[1]) + 1) / (len(row[0]) + 1)


def far_apart(row: Row, usual: float) -> bool:
    return max(map(len, row)) > SHORT and not usual / FAR <= ratio(row) <= usual * FAR


UNUSUAL = f"its sides differ in length {FAR} times more than usual"
PROBLEMS: dict[str, Callable[[Row, float], bool]] = {
    "a replacement character (U+FFFD): it was decoded wrongly before": lambda row, usual: "\ufffd" in row[0] + row[1],
    "it looks like UTF-8 that was read as Latin-1": lambda row, usual: bool(MOJIBAKE.search(row[0]) or MOJIBAKE.search(row[1])),
    "a control character": lambda row, usual: any(ord(one) < 32 and one not in "\t\n\r" for one in row[0] + row[1]),
    UNUSUAL: far_apart,
}
