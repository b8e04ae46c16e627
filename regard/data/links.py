"""Word alignments as links: reading and writing them, and taking them from attention weights."""

import gzip
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from regard.data.lines import require_file
from regard.errors import DataError

Link = tuple[int, int]  # source word, target word; both count from 0
LINK = re.compile(r"([0-9]+)([-?p])([0-9]+)")


class Links(NamedTuple):
    """Gold links of one sentence pair; the sure ones are possible too."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def parse_links(line: str, where: str) -> Links:
    """A line in Pharaoh format: `0-0 1?2` is one sure and one possible link (`1p2` says the same)."""
    sure: set[Link] = set()
    possible: set[Link] = set()
    for token in line.split():
        match = LINK.fullmatch(token)
        if match is None:
            raise DataError(f"{where}: {token!r} is not a link; write 0-0 (sure), 0?0 or 0p0 (possible), from 0")
        source, kind, target = match.groups()
        (sure if kind == "-" else possible).add((int(source), int(target)))
    return Links(frozenset(sure), frozenset(sure | possible))


def read_links(path: Path) -> list[Links]:
    """One sentence pair a line; a name that ends in .gz is unpacked."""
    unpack = gzip.open if path.suffix == ".gz" else open
    try:
        require_file(path)
        with unpack(path, "rt", encoding="utf-8") as lines:
            return [parse_links(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as links: {error}") from error


def format_links(sure: AbstractSet[Link], possible: AbstractSet[Link] = frozenset()) -> str:
    """The links as a line in Pharaoh format, sorted; `format_links(*links)` writes gold links back."""
    kinds = [(link, "-" if link in sure else "?") for link in sorted(sure | possible)]
    return " ".join(f"{source}{kind}{target}" for (source, target), kind in kinds)


def flip(links: AbstractSet[Link]) -> frozenset[Link]:
    """The same links, seen from the other side."""
    return frozenset((target, source) for source, target in links)


def flip_gold(links: Links) -> Links:
    return Links(flip(links.sure), flip(links.possible))


def links_from_weights(weights: Float[np.ndarray, "target source"]) -> frozenset[Link]:
    """Each target word links to its heaviest source word; one without any weight links to none."""
    if not weights.size:
        return frozenset()
    targets = np.flatnonzero(weights.max(axis=1) > 0)
    return frozenset(zip(weights.argmax(axis=1)[targets].tolist(), targets.tolist(), strict=True))


def membership(words: Sequence[int]) -> Bool[np.ndarray, "tokens words"]:
    """Which token is a piece of which word; a token of word -1 (END and its kin) is a piece of none."""
    tokens = np.asarray(words, dtype=np.int64)
    return np.equal.outer(tokens, np.arange(tokens.max(initial=-1) + 1))


def merge_pieces(
    weights: Float[np.ndarray, "target_tokens source_tokens"], source_words: Sequence[int], target_words: Sequence[int]
) -> Float[np.ndarray, "target_words source_words"]:
    """From tokens to words: a word gets what all its pieces get, and looks where its pieces look on average.

    `source_words` and `target_words` name the word of each token; what fell on tokens of word -1 is left out.
    """
    source, target = membership(source_words), membership(target_words)
    assert weights.shape == (len(target), len(source)), (weights.shape, len(target), len(source))
    share = target / np.maximum(target.sum(axis=0), 1)
    merged: Float[np.ndarray, "target_words source_words"] = (share.T @ weights @ source).astype(weights.dtype)
    return merged
