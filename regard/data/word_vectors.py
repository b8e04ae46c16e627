"""Vectors of words from files of others: word2vec's text format, which has a header, and GloVe's, which has none."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.lines import read_lines
from regard.errors import DataError


class WordVectors(NamedTuple):
    """Those of the words that were wanted; of a word that stands twice, the first."""

    size: int
    vectors: dict[str, npt.NDArray[np.float32]]
    lines: int  # of the file
    unread: int  # lines whose word is not UTF-8: they are passed over, as files of other people have some


def read_word_vectors(path: Path, wanted: Collection[str]) -> WordVectors:
    """A word and its numbers per line, separated by spaces or tabs; words may have spaces themselves. `.gz` may follow the
    name; empty lines are passed over."""
    expected, size, vectors, lines, unread = None, None, dict[str, npt.NDArray[np.float32]](), 0, 0
    for block in read_lines(path):
        for number, text in enumerate(block.texts, start=block.first):
            cells = cut(text)
            if number == 1 and len(cells) == 2 and all(map(str.isdigit, cells)):
                expected, size = int(cells[0]), int(cells[1])
                continue
            if expected is not None and number == 2:
                refuse_other_format(path, size, cells, number in block.problems)
            if number in block.problems:
                unread += 1
            elif cells:
                size = size or len(cells) - 1
                word, numbers = " ".join(cells[:-size]), cells[-size:]
                if size < 1 or not word:
                    raise DataError(f"{path}:{number}: {counted(len(cells) - 1, size)}")
                if word in wanted and word not in vectors:
                    vectors[word] = vector(path, number, numbers)
            lines += bool(cells) or number in block.problems
    if size is None:
        raise DataError(f"{path}: no vectors")
    if expected is not None and expected != lines:
        raise DataError(
            f"{path}: its first line says that there are {expected:,} vectors, and there are {lines:,}: copy it again"
        )
    return WordVectors(size, vectors, lines, unread)


def cut(text: str) -> list[str]:
    """At spaces and tabs only: words of others have no-break spaces in them."""
    cells = text.replace("\t", " ").split(" ")
    return [cell for cell in cells if cell] if "" in cells else cells


def refuse_other_format(path: Path, size: int | None, cells: list[str], broken: bool) -> None:
    """The line after word2vec's header."""
    if broken or "\0" in "".join(cells):
        raise DataError(
            f"{path}: numbers as bytes, as word2vec writes them with -binary 1; save it as text "
            "(gensim: save_word2vec_format(path, binary=False))"
        )
    if cells and len(cells) != (size or 0) + 1:
        raise DataError(f"{path}:2: {counted(len(cells) - 1, size or 0)}, by its first line")


def counted(found: int, size: int) -> str:
    if size < 1:
        return "no numbers after the word; spaces or tabs separate them"
    return f"{found} numbers after the word, where vectors have {size}"


def vector(path: Path, line: int, numbers: list[str]) -> npt.NDArray[np.float32]:
    try:
        found = np.array(numbers, np.float32)
    except ValueError as error:
        raise DataError(f"{path}:{line}: not a number: {str(error).rpartition(': ')[2]:.40}") from None
    if not np.isfinite(found).all():
        raise DataError(f"{path}:{line}: a vector with a number that is not finite")
    return found
