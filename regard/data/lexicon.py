"""Which words translate which: IBM's Model 1 (Brown et al. 1993) on rows of tokens."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.integer]


class Lexicon(NamedTuple):
    """t(target | source) of every pair of words that stand together in some row."""

    source: npt.NDArray[np.int64]
    target: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]


def learn(rows: Iterable[tuple[Tokens, Tokens]], rounds: int = 5) -> Lexicon:
    """t(f | e) = Σ p(e | f) / Σ_f Σ p(e | f), over the places where both stand; p(e | f) = t(f | e) / Σ_e t(f | e) there."""
    sources, targets, places, begin = list[Tokens](), list[Tokens](), list[Tokens](), 0
    for one, other in rows:
        sources.append(np.tile(one, len(other)))
        targets.append(np.repeat(other, len(one)))
        places.append(np.repeat(np.arange(begin, begin + len(other)), len(one)))
        begin += len(other)
    source, target, place = (np.concatenate([np.zeros(0), *side]).astype(np.int64) for side in (sources, targets, places))
    words = int(target.max(initial=0)) + 1
    pairs, pair = np.unique(source * words + target, return_inverse=True)
    source, target = pairs // words, pairs % words
    table: npt.NDArray[Any] = np.ones(len(pairs))
    for _ in range(rounds):
        share = table[pair] / np.bincount(place, table[pair], begin)[place]
        counts = np.bincount(pair, share, len(pairs)).astype(np.float64)  # of no pairs at all it makes integers
        table = counts / np.bincount(source, counts)[source]
    return Lexicon(source, target, table)


def likeliest(lexicon: Lexicon, words: int, count: int, nothing: int) -> npt.NDArray[np.int32]:
    """The `count` most probable translations of each of so many words, filled up with `nothing`."""
    order = np.lexsort((-lexicon.probability, lexicon.source))
    source, target = lexicon.source[order], lexicon.target[order]
    rank = np.arange(len(source)) - np.searchsorted(source, source)
    found = np.full((words, count), nothing, np.int32)
    found[source[rank < count], rank[rank < count]] = target[rank < count]
    return found
