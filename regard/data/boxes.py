"""Where in an image a word of its caption is: boxes, a line for each row."""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

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


class Regions(NamedTuple):
    """What the states of an image's memory lie over, line by line: how many lines there are, how many in each, and pixels of
    a cell."""

    rows: int
    columns: int
    height: int
    width: int

    def middle(self, place: int) -> tuple[float, float]:
        """x and y, in pixels, of what a state lies over."""
        row, column = divmod(place, self.columns)
        return (column + 0.5) * self.width, (row + 0.5) * self.height

    def shares(self, boxes: Float[np.ndarray, "boxes sides"]) -> Float[np.ndarray, "boxes regions"]:
        """area(box ∩ region) / area(box), of the part of a box that lies in the image; 0 everywhere where none does."""
        left, top, right, bottom = boxes.T
        down, across = overlaps(top, bottom, self.rows, self.height), overlaps(left, right, self.columns, self.width)
        areas = (down[:, :, None] * across[:, None, :]).reshape(len(boxes), self.rows * self.columns)
        total = areas.sum(axis=1, keepdims=True)
        shares: Float[np.ndarray, "boxes regions"] = areas / np.where(total > 0, total, 1)
        return shares


def overlaps(
    begins: Float[np.ndarray, "boxes"], ends: Float[np.ndarray, "boxes"], cells: int, size: int
) -> Float[np.ndarray, "boxes cells"]:
    """How much of each stretch lies in each of the cells, which stand in a row."""
    edges = np.arange(cells + 1) * size
    found: Float[np.ndarray, "boxes cells"] = np.minimum(ends[:, None], edges[1:]) - np.maximum(begins[:, None], edges[:-1])
    return found.clip(min=0)


def parse_boxes(line: str, where: str) -> Boxes:
    """`2:3,4,14,15 7:20,4,30,14`: of the third word and of the eighth."""
    found = Boxes()
    for token in line.split():
        match = FORM.fullmatch(token)
        if match is None:
            raise DataError(f"{where}: {token!r:.60} is not a box; write word:left,top,right,bottom, the word counted from 0")
        word, *sides = map(int, match.groups())
        if word in found:
            raise DataError(f"{where}: word {word} has two boxes; give it one that holds both")
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
