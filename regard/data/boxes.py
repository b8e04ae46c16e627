"""Where in an image a word of its caption is: boxes, a line for each row."""

import re
from pathlib import Path
from typing import NamedTuple

from regard.data.lines import read_lines
from regard.errors import DataError

FORM = re.compile(r"([0-9]+):([0-9]+),([0-9]+),([0-9]+),([0-9]+)")


class Box(NamedTuple):
    """In pixels; right and bottom are the first column and row outside."""

    left: int
    top: int
    right: int
    bottom: int

    def holds(self, x: float, y: float) -> bool:
        return self.left <= x < self.right and self.top <= y < self.bottom


Boxes = dict[int, Box]  # by the place of a word in its target, from 0


def parse_boxes(line: str, where: str) -> Boxes:
    """`2:3,4,14,15 7:20,4,30,14`: of the third word and of the eighth."""
    found = Boxes()
    for token in line.split():
        match = FORM.fullmatch(token)
        if match is None:
            raise DataError(f"{where}: {token!r:.60} is not a box; write word:left,top,right,bottom, the word counted from 0")
        word, *sides = map(int, match.groups())
        found[word] = Box(*sides)
        if found[word].right <= found[word].left or found[word].bottom <= found[word].top:
            raise DataError(f"{where}: {token!r} holds no pixel: right and bottom are beyond left and top")
    return found


def read_boxes(path: Path, targets: list[str]) -> list[Boxes]:
    """A line for each of these targets, of words that they have."""
    found = [
        parse_boxes(text, f"{path}:{line}")
        for block in read_lines(path)
        for line, text in enumerate(block.texts, start=block.first)
    ]
    if len(found) != len(targets):
        raise DataError(f"{path}: {len(found)} lines of boxes for {len(targets)} rows")
    for line, (boxes, target) in enumerate(zip(found, targets, strict=True), start=1):
        words = len(target.split())
        if boxes and max(boxes) >= words:
            raise DataError(f"{path}:{line}: a box of word {max(boxes)}, and the target has {words} words (counted from 0)")
    return found
