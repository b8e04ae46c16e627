"""Rows that can be read but look wrong: text that was decoded wrongly, or sides that hardly belong together."""

import re
import statistics
from collections.abc import Callable, Sequence

Row = tuple[str, str]
Length = Callable[[str], int]
FAR = 8  # times longer or shorter than usual beside its source
USUAL = 0.05  # the share of rows from which on this is nothing unusual
SHORT = 24  # characters; shorter texts may be anything
MOJIBAKE = re.compile("[\u00c2\u00c3][\u0080-\u00bf]|\u00e2\u20ac")  # UTF-8 read as Latin-1 or Windows-1252


def suspicious_rows(rows: Sequence[Row]) -> list[tuple[int, str]]:
    """The places of rows that look wrong, each with its first problem."""
    length: Length = words if as_many_words(rows) else len
    usual = statistics.median(ratio(row, length) for row in rows)
    far = [max(map(len, row)) > SHORT and not usual / FAR <= ratio(row, length) <= usual * FAR for row in rows]
    if sum(far) > USUAL * len(rows):  # lengths that differ so in many rows are of no pair's making
        far = [False] * len(rows)
    found = [[problem for problem, holds in PROBLEMS.items() if holds(*given)] for given in zip(rows, far, strict=True)]
    return [(place, problems[0]) for place, problems in enumerate(found) if problems]


def ratio(row: Row, length: Length = len) -> float:
    return (length(row[1]) + 1) / (length(row[0]) + 1)


def words(text: str) -> int:
    return len(text.split())


def as_many_words(rows: Sequence[Row]) -> bool:
    """On both sides of nearly all rows, and several: words and their tags, which are much shorter than a long word."""
    counts = [(words(source), words(target)) for source, target in rows]
    return sum(source == target for source, target in counts) > 0.99 * len(rows) and statistics.median_low(counts)[0] > 1


PROBLEMS: dict[str, Callable[[Row, bool], bool]] = {
    "a replacement character (U+FFFD): it was decoded wrongly before": lambda row, far: "\ufffd" in row[0] + row[1],
    "it looks like UTF-8 that was read as Latin-1": lambda row, far: bool(MOJIBAKE.search(row[0]) or MOJIBAKE.search(row[1])),
    "a control character": lambda row, far: any(ord(one) < 32 and one not in "\t\n\r" for one in row[0] + row[1]),
    f"its sides differ in length {FAR} times more than usual": lambda row, far: far,
}
