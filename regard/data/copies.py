"""The extended vocabulary of a sentence: the target's own, followed by the source's words that the target does not know."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.tokenizer import END, PAD, UNKNOWN, Tokenizer


class Copied(NamedTuple):
    """What a source offers to be copied."""

    ids: list[int]  # each of its tokens as the target would write it
    extra: list[bytes]  # how to spell the ids past the target's vocabulary


def copied(surfaces: Sequence[bytes], target: Tokenizer) -> Copied:
    """The target's id where it has a token of that spelling; otherwise the next past its vocabulary, one for each word."""
    known, extra = target.by_spelling, dict[bytes, int]()
    ids = [known[surface] if surface in known else extra.setdefault(surface, len(target) + len(extra)) for surface in surfaces]
    return Copied(ids, list(extra))


def extend(ids: Sequence[int], surfaces: Sequence[bytes], source: Copied, vocabulary: int) -> list[int]:
    """A target's ids, where words that it does not know but its source has are no longer UNKNOWN."""
    extra = {surface: token for token, surface in enumerate(source.extra, start=vocabulary)}
    return [extra.get(surface, UNKNOWN) if token == UNKNOWN else token for token, surface in zip(ids, surfaces, strict=True)]


def extended_rows(
    sources: Sequence[str], targets: Sequence[str], source: Tokenizer, target: Tokenizer
) -> tuple[list[Copied], list[list[int]]]:
    """What each source offers, and the ids of each target over that sentence's extended vocabulary."""
    offers = [copied(surfaces, target) for surfaces in source.surfaces(sources)]
    rows = zip(target.encode(targets), target.surfaces(targets), offers, strict=True)
    return offers, [extend(ids, surfaces, offer, len(target)) for ids, surfaces, offer in rows]


def without_end(matrix: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Padded copies: the end mark is never copied, so it stands for as little as padding does."""
    return np.where(matrix == END, PAD, matrix)


def extended_size(words: npt.NDArray[np.int64], vocabulary: int) -> int:
    """Of the smallest vocabulary that all rows of a batch can write from."""
    return max(vocabulary, int(words.max(initial=0)) + 1)
