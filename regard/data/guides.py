"""Given word alignments as links between tokens, for attention that is guided by them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from regard.data.lines import read_lines
from regard.data.links import Link, parse_links
from regard.data.readers import Rows
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError


class Guides:
    """An alignment file, read in step with the rows that it belongs to: its line n is the links of row n."""

    def __init__(self, path: Path, source: Tokenizer, target: Tokenizer, max_length: int) -> None:
        self.path, self.tokenizers, self.max_length = path, (source, target), max_length
        self.texts = lines_of(path)
        self.lines = self.rows = self.left_out = 0

    def links(self, rows: Rows) -> list[list[int]]:
        """For each good row its links between tokens, as target, source, target, source ..."""
        numbers = [*rows.lines, *(fault.line for fault in rows.faults)]
        own = {number: self.next_line() for number in sorted(numbers)}  # the lines of bad rows are skipped with them
        self.rows += len(numbers)
        sides = rows.columns["source"], rows.columns["target"]
        surfaces = [tokenizer.surfaces(side) for tokenizer, side in zip(self.tokenizers, sides, strict=True)]
        each = zip(rows.lines, zip(*sides, strict=True), zip(*surfaces, strict=True), strict=True)
        return [self.between_tokens(*own[number], texts, spelled) for number, texts, spelled in each]

    def next_line(self) -> tuple[int, str]:
        """The next line's number and text."""
        text = next(self.texts, None)
        self.lines += text is not None
        return self.lines, text or ""

    def between_tokens(
        self, line: int, text: str, texts: tuple[str, str], spelled: tuple[list[bytes], list[bytes]]
    ) -> list[int]:
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

    def finish(self, files: Sequence[Path]) -> None:
        """There must be as many lines as rows, whether they could be used or not."""
        lines = self.lines + sum(1 for _ in self.texts)
        if lines != self.rows:
            raise DataError(f"{self.path}: {lines} lines of links for the {self.rows} rows of {' and '.join(map(str, files))}")


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
