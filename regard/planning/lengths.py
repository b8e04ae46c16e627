"""How long the pairs of a recipe are."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import NamedTuple

from regard.corpora import CORPORA
from regard.corpora.corpus import generate
from regard.data.readers import read_rows
from regard.errors import UserError
from regard.planning.cost import Lengths
from regard.recipe import Data, choose

SAMPLE = 10_000  # pairs that are read
DEFAULT = Lengths()
UNITS: dict[str, Callable[[str], int]] = {
    "character": len,
    "byte": lambda text: len(text.encode()),
    "word": lambda text: len(text.split()),
}


class Measured(NamedTuple):
    lengths: Lengths
    how: str


def lengths_of(data: Data, source: int | None, target: int | None) -> Measured:
    """As given; of the recipe's data where they can be read; or those of a usual sentence."""
    if source is not None and target is not None:
        return Measured(Lengths(source, target), "as given")
    found = sampled(data)
    lengths = Lengths(source or found.lengths.source, target or found.lengths.target)
    return Measured(lengths, found.how if (source or target) is None else f"as given; the other: {found.how}")


def sampled(data: Data) -> Measured:
    pairs, name = sample(data), data.tokenizer.kind
    if not pairs:
        return Measured(DEFAULT, "a usual sentence, for the recipe names no data that can be read")
    unit = name if name in UNITS else "word"
    means = (round(sum(map(UNITS[unit], side)) / len(side)) + 1 for side in zip(*pairs, strict=True))
    told = "" if unit == name else f"; pieces of words ({name}) are more than words"
    return Measured(Lengths(*means), f"{unit}s and the end mark, the mean of {len(pairs):,} pairs{told}")


def sample(data: Data) -> list[tuple[str, str]]:
    if data.corpus is not None:
        drawn = generate(choose(CORPORA, data.corpus.name, "corpus"), data.corpus.seed, 1000)["train"]
        return [(pair.source, pair.target) for pair in drawn]
    if data.train is None or not all(path.exists() for path in data.train.files):
        return []
    return list(islice(rows(data), SAMPLE))


def rows(data: Data) -> Iterable[tuple[str, str]]:
    assert data.train is not None
    for block in read_rows(data.train):
        yield from zip(block.columns["source"], block.columns["target"], strict=True)


def check(lengths: Lengths, batch_tokens: int) -> None:
    if max(lengths) > batch_tokens:
        raise UserError(f"a pair of {max(lengths)} tokens does not fit a batch of {batch_tokens}: raise data.batch_tokens")
