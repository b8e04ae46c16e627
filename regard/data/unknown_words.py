"""Words that a batch hides, though the vocabularies have them: what nobody knows can only be copied, and has to be seen to
be learned."""

import numpy as np
import numpy.typing as npt

from regard.data.batching import Batch, Integers
from regard.data.tokenizer import PAD, SPECIALS, UNKNOWN


def hide_words(batch: Batch, chance: float, seed: int, step: int) -> Batch:
    """With this chance a word that a row's source offers and its target has is unknown to both: UNKNOWN in the source, and in
    copies and target an id past the extended vocabulary. A function of (seed, step, row, word), in whatever batch a row is."""
    source, target, copies = batch["source"], batch["target"], batch["copies"]
    assert batch.rows is not None, "what is hidden from a row depends on its place in the store"
    assert copies.size is not None, "copies are numbered in an extended vocabulary"
    uniform = (bits_of(seed, step, batch.rows[:, None], copies.values) >> np.uint64(11)) * 2.0**-53
    base = np.arange(len(batch.rows))[:, None] * copies.size  # so that words of different rows are different
    offered, written = base + copies.values, base + target.values
    hidden = (uniform < chance) & (copies.values != PAD) & np.isin(offered, written)
    words = np.unique(offered[hidden])
    first = np.searchsorted(words, base)  # of each row
    offers, writes = (
        np.where(np.isin(each, words), copies.size + np.searchsorted(words, each) - first, each - base)
        for each in (offered, written)
    )
    size = max(copies.size, int(offers.max(initial=0)) + 1)
    reads = np.where(hidden, UNKNOWN, source.values)
    columns = {
        "source": source._replace(values=reads), "target": target._replace(values=writes),
        "copies": copies._replace(values=offers, size=size),
    }  # fmt: skip
    return Batch({**batch.columns, **columns}, batch.rows)


def hide_source(batch: Batch, chance: float, seed: int, step: int) -> Batch:
    """With this chance a word of the source is UNKNOWN, so that a model learns what to do where it does not know a word; its
    characters, where it is spelled out, stay."""
    source = batch["source"]
    assert batch.rows is not None, "what is hidden from a row depends on its place in the store"
    words = source.values if source.values.ndim == 2 else source.values[..., 0]
    uniform = (bits_of(seed, step, batch.rows[:, None], np.arange(words.shape[1])) >> np.uint64(11)) * 2.0**-53
    reads = np.where((uniform < chance) & (words >= len(SPECIALS)), UNKNOWN, words)
    if source.values.ndim > 2:
        reads = np.concatenate([reads[..., None], source.values[..., 1:]], axis=-1)
    return Batch({**batch.columns, "source": source._replace(values=reads)}, batch.rows)


def bits_of(*numbers: int | Integers) -> npt.NDArray[np.uint64]:
    """64 random bits, a function of these numbers alone: each stirred in as SplitMix64 does (Steele et al. 2014)."""
    bits = np.zeros(1, np.uint64)
    for number in numbers:
        bits = (bits ^ np.asarray(number, np.int64).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits = bits ^ (bits >> np.uint64(31))
    return bits
