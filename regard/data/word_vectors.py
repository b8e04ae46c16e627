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
    """A word and its numbers per line, separated by spaces; words may have spaces themselves. `.gz` may follow the name."""
    expected, size, vectors, lines, unread = None, None, dict[str, npt.NDArray[np.float32]](), 0, 0
    for block in read_lines(path):
        for number, text in enumerate(block.texts, start=block.first):
            if number == 1 and (header := text.split()) and len(header) == 2 and all(map(str.isdigit, header)):
                expected, size = int(header[0]), int(header[1])
                continue
            lines += 1
            if number in block.problems:
                unread += 1
                continue
            size = size or len(text.split()) - 1
            word, *numbers = text.strip("\r ").rsplit(" ", size)
            if size < 1 or len(numbers) != size:
                raise DataError(f"{path}:{number}: {len(numbers)} numbers after the word, where vectors have {size}")
            if word in wanted and word not in vectors:
                vectors[word] = vector(path, number, numbers)
    if size is None:
        raise DataError(f"{path}: no vectors")
    if expected is not None and expected != lines:
        raise DataError(
            f"{path}: its first line says that there are {expected:,} vectors, and there are {lines:,}: copy it again"
        )
    return WordVectors(size, vectors, lines, unread)


def vector(path: Path, line: int, numbers: list[str]) -> npt.NDArray[np.float32]:
    try:
        found = np.array(numbers, np.float32)
    except ValueError as error:
        raise DataError(f"{path}:{line}: not a number: {str(error).rpartition(': ')[2]:.40}") from None
    if not np.isfinite(found).all():
        raise DataError(f"{path}:{line}: a vector with a number that is not finite")
    return found
