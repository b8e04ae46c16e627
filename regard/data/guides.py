"""What is known of where to look, for attention that is guided: links between words, or boxes of words in images."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from regard.data.boxes import Box, Regions, parse_boxes
from regard.data.lines import read_lines
from regard.data.links import Link, parse_links
from regard.data.pictures import Image
from regard.data.readers import Rows
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError

SIDES = 5  # numbers that a store keeps of a box: the target's token, left, top, right, bottom


class Guides:
    """A file, read in step with the rows that it belongs to: its line n is about row n."""

    form: ClassVar[str]  # how the column of the store becomes one of a batch
    features: ClassVar[tuple[int, ...]] = ()
    told: ClassVar[str]  # what a line holds

    def __init__(self, path: Path, max_length: int) -> None:
        self.path, self.max_length = path, max_length
        self.texts = lines_of(path)
        self.lines = self.rows = self.left_out = 0

    def positions(self, rows: Rows) -> list[Any]:
        """What the store keeps of each good row."""
        numbers = [*rows.lines, *(fault.line for fault in rows.faults)]
        own = {number: self.next_line() for number in sorted(numbers)}  # the lines of bad rows are skipped with them
        self.rows += len(numbers)
        return self.between_tokens([own[number] for number in rows.lines], rows)

    def between_tokens(self, lines: Sequence[tuple[int, str]], rows: Rows) -> list[Any]:
        raise NotImplementedError

    def next_line(self) -> tuple[int, str]:
        """The next line's number and text."""
        text = next(self.texts, None)
        self.lines += text is not None
        return self.lines, text or ""

    def finish(self, files: Sequence[Path]) -> None:
        """There must be as many lines as rows, whether they could be used or not."""
        lines = self.lines + sum(1 for _ in self.texts)
        if lines != self.rows:
            told = f"{lines} lines of {self.told} for the {self.rows} rows of {' and '.join(map(str, files))}"
            raise DataError(f"{self.path}: {told}")


class LinkGuides(Guides):
    """A row has its links between tokens, as target, source, target, source ..."""

    form, told = "linked", "links"

    def __init__(self, path: Path, source: Tokenizer, target: Tokenizer, max_length: int) -> None:
        super().__init__(path, max_length)
        self.tokenizers = source, target

    def between_tokens(self, lines: Sequence[tuple[int, str]], rows: Rows) -> list[Any]:
        sides = rows.columns["source"], rows.columns["target"]
        surfaces = [tokenizer.surfaces(side) for tokenizer, side in zip(self.tokenizers, sides, strict=True)]
        each = zip(lines, zip(*sides, strict=True), zip(*surfaces, strict=True), strict=True)
        return [self.linked(*line, texts, spelled) for line, texts, spelled in each]

    def linked(self, line: int, text: str, texts: tuple[str, str], spelled: tuple[list[bytes], list[bytes]]) -> list[int]:
        """All tokens of a linked source word x all tokens of the target word it is linked to."""
        links = parse_links(text, f"{self.path}:{line}").possible
        counts = [len(side.split()) for side in texts]
        self.refuse_strangers(links, counts, line)
        if not links or max(map(len, spelled)) > self.max_length:  # a row that long is left out anyway
            return []
        source, target = (tokens_of(tokenizer, side) for tokenizer, side in zip(self.tokenizers, spelled, strict=True))
        if [len(source), len(target)] != counts:  # the tokenizer sees other words than the blanks part: which are meant?
            self.left_out += 1
            return []
        pairs = {(token, other) for link in links for token in target[link[1]] for other in source[link[0]]}
        return [token for pair in sorted(pairs) for token in pair]

    def refuse_strangers(self, links: frozenset[Link], counts: Sequence[int], line: int) -> None:
        for source, target in sorted(links):
            if source >= counts[0] or target >= counts[1]:
                raise DataError(
                    f"{self.path}:{line}: the link {source}-{target} names a word that is not there: "
                    f"the source has {counts[0]} words, the target {counts[1]}, counted from 0"
                )


class BoxGuides(Guides):
    """A row has the box of each token whose word has one, in pixels of the image as it is read."""

    form, features, told = "boxed", (SIDES,), "boxes"

    def __init__(self, path: Path, images: Image, folder: Path, target: Tokenizer, max_length: int) -> None:
        super().__init__(path, max_length)
        self.images, self.folder, self.target = images, folder, target

    def between_tokens(self, lines: Sequence[tuple[int, str]], rows: Rows) -> list[Any]:
        names, targets = self.images.located(rows.columns["source"], self.folder), rows.columns["target"]
        each = zip(lines, names, targets, self.target.surfaces(targets), strict=True)
        found = [self.boxed(*line, name, target, spelled) for line, name, target, spelled in each]
        return [np.array(boxes, np.float32).reshape(-1, SIDES) for boxes in found]

    def boxed(self, line: int, text: str, name: str, target: str, spelled: list[bytes]) -> list[list[float]]:
        """All tokens of a word have its box."""
        boxes, words = parse_boxes(text, f"{self.path}:{line}"), len(target.split())
        if strangers := [word for word in boxes if word >= words]:
            raise DataError(f"{self.path}:{line}: a box of word {strangers[0]}, and the target has {words} words, from 0")
        if not boxes or len(spelled) > self.max_length:
            return []
        tokens = tokens_of(self.target, spelled)
        if len(tokens) != words:
            self.left_out += 1
            return []
        sides = {word: self.as_read(box, name, line) for word, box in boxes.items()}
        return [[float(token), *sides[word]] for word in sorted(sides) for token in tokens[word]]

    def as_read(self, box: Box, name: str, line: int) -> list[float]:
        """In the image as it is read, which may be scaled; a box that is not in it is refused."""
        (across, down), (height, width, _) = self.images.shrunk(Path(name)), self.images.features
        left, top, right, bottom = box.left / across, box.top / down, box.right / across, box.bottom / down
        if left >= width or top >= height:
            told = f"the box {','.join(map(str, box))} lies outside of the image, which is {width * across:g} pixels wide"
            raise DataError(f"{self.path}:{line}: {told} and {height * down:g} high")
        return [left, top, right, bottom]


def tokens_of(tokenizer: Tokenizer, spelled: Sequence[bytes]) -> list[list[int]]:
    """The tokens of each word."""
    words: dict[int, list[int]] = {}
    for token, word in enumerate(tokenizer.word_places(spelled)):
        words.setdefault(word, []).append(token)
    return list(words.values())


def lines_of(path: Path) -> Iterator[str]:
    for block in read_lines(path):
        for number, problem in sorted(block.problems.items()):
            raise DataError(f"{path}:{number}: {problem}")
        yield from block.texts


def dense_links(
    tokens: npt.NDArray[np.integer], lengths: npt.NDArray[np.int64], shape: tuple[int, int, int]
) -> npt.NDArray[np.float32]:
    """[row, target, source]: an equal share for each token that a target token is linked to; all 0 where it has no links."""
    dense = np.zeros(shape, np.float32)
    links = tokens.reshape(-1, 2)
    dense[np.repeat(np.arange(len(lengths)), lengths // 2), links[:, 0], links[:, 1]] = 1
    dense /= np.maximum(dense.sum(axis=2, keepdims=True), 1)
    return dense


def dense_boxes(
    boxes: Float[np.ndarray, "boxes sides"], lengths: npt.NDArray[np.int64], targets: int, regions: Regions
) -> npt.NDArray[np.float32]:
    """[row, target, region]: the share of a token's box that lies in each region; all 0 where it has no box."""
    dense = np.zeros((len(lengths), targets, regions.rows * regions.columns), np.float32)
    dense[np.repeat(np.arange(len(lengths)), lengths), boxes[:, 0].astype(np.int64)] = regions.shares(boxes[:, 1:])
    return dense
