"""Rows with named columns, as every reader yields them; what makes a text unfit to be in one."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.data.faults import Fault

FIRST = 200  # rows that tell which columns of a table are which
Texts = dict[str, list[str]]
Columns = Mapping[str, int | str | Path]  # where the column of that name is in a table
# Whatever is neither white space nor a format character (Unicode category Cf), which has no width.
SEEN = re.compile(
    "[^\\s\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)


class Rows(NamedTuple):
    """Good rows, the lines they stand in, and the faults of the rows between them."""

    columns: Texts
    lines: Sequence[int]
    faults: list[Fault]

    def cut(self, most: int) -> Iterator["Rows"]:
        """The same in pieces of so many rows; all faults are in the first."""
        for first in range(0, max(len(self.lines), 1), most):
            piece = slice(first, first + most)
            columns = {name: values[piece] for name, values in self.columns.items()}
            yield Rows(columns, self.lines[piece], [] if first else self.faults)


def good_rows(
    files: Mapping[str, Path], columns: Texts, numbers: Sequence[int], bad: dict[int, Fault], empty: bool = False
) -> Rows:
    """Take out the rows that are bad already, and those whose text in one column cannot be used; `empty` ones may be there."""
    for name, texts in columns.items():
        for place, problem in text_problems(name, texts, empty):
            bad.setdefault(numbers[place], Fault(files[name], numbers[place], problem))
    if not bad:
        return Rows(columns, numbers, [])
    keep = [place for place, number in enumerate(numbers) if number not in bad]
    kept = {name: [texts[place] for place in keep] for name, texts in columns.items()}
    return Rows(kept, [numbers[place] for place in keep], [bad[number] for number in sorted(bad)])


def text_problems(column: str, texts: list[str], empty: bool) -> Iterable[tuple[int, str]]:
    firsts = {text.strip()[:1] for text in texts}
    if all(map(SEEN.search, firsts)) and not any("\0" in text for text in texts):
        return
    for place, text in enumerate(texts):
        if SEEN.search(text) is None and not empty:
            yield place, f"the {column} is empty"
        elif "\0" in text:
            yield place, f"a NUL character in the {column}, at column {text.index(chr(0)) + 1}"


def key_of(column: str) -> str:
    """The key that says where the column of this name is in a table."""
    return f"{column}_column" if column in ("source", "target") else f"columns.{column}"
