"""What a generated data set is: rows with their true word alignment, in named splits, drawn one by one."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regard.errors import UserError

REMEMBERED = 1 << 17  # training sources that may not come again, at the most
PATIENCE = 10_000  # candidates in a row that have all come before: then there are hardly others


class Pair(NamedTuple):
    """Two sentences of words parted by single blanks, and the 0-based links (source word, target word) between them.

    A corpus whose pairs have no word alignment has no links at all.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


Splits = dict[str, list[Pair]]
Draw = Callable[[str], Iterator[Pair]]  # from a seed, without end
Box = tuple[int, int, int, int]  # left, top, and the first column and row outside, in pixels


class Rendering(NamedTuple):
    """How sources are seen: each as a picture in which its words have boxes."""

    shape: tuple[int, int, int]  # of every picture: height, width, channels
    picture: Callable[[str], npt.NDArray[np.uint8]]
    boxes: Callable[[str], list[Box]]


@dataclass(frozen=True)
class Corpus:
    """A data set made by a program. The same seed and sizes give the same rows on every machine."""

    name: str
    about: str
    source_suffix: str
    target_suffix: str
    sizes: Mapping[str, int]  # rows of each split, unless asked otherwise; the first is `train`
    draw: Draw  # rows of every split that has none of its own
    own: Mapping[str, Draw] = field(default_factory=dict)  # of splits with other rows than training, such as longer ones
    target_column: str = "target"  # `tags` where it has a word for each word of the source
    joint: str | None = " [SEP] "  # what stands between source and target where both are one text; None: the source is the text
    rendering: Rendering | None = None  # where models read pictures of the sources

    def candidates(self, split: str, seed: int) -> Iterator[Pair]:
        return self.own.get(split, self.draw)(f"{self.name} {seed} {split}")


def rows(corpus: Corpus, seed: int = 1, size: int | None = None) -> dict[str, Iterator[Pair]]:
    """The rows of each split, drawn when they are asked for, in memory that does not grow with their number. `size` is that of
    the training rows and changes nothing else.

    All other splits are drawn first, from the last on. None has a source of another, and none has one twice, but for training
    rows so many that their memory of each other ends (`fresh`)."""
    if size is not None and size < 1:
        raise UserError(f"a corpus has at least 1 training pair (given: {size})")
    sizes, taken, drawn = {**corpus.sizes, **({} if size is None else {"train": size})}, set[str](), dict[str, Iterator[Pair]]()
    for split in reversed(sizes):
        found = fresh(corpus, corpus.candidates(split, seed), frozenset(taken))
        if split != "train":
            pairs = list(islice(found, sizes[split]))
            taken |= {pair.source for pair in pairs}
            found = iter(pairs)
        drawn[split] = islice(found, sizes[split])
    return {split: drawn[split] for split in sizes}


def fresh(corpus: Corpus, candidates: Iterator[Pair], taken: frozenset[str]) -> Iterator[Pair]:
    """Candidates whose source neither is `taken` nor has come before. What has come before is forgotten when it is as much as
    is REMEMBERED, and when PATIENCE candidates in a row were known: so there are rows without end of a corpus of few."""
    before, known = set[str](), 0
    for pair in candidates:
        if pair.source not in taken and pair.source not in before:
            if len(before) == REMEMBERED:
                before.clear()
            before.add(pair.source)
            known = 0
            yield pair
        elif (known := known + 1) == PATIENCE:
            if not before:
                raise UserError(f"the {corpus.name} corpus has no rows but those of its other splits")
            before.clear()
            known = 0


def generate(corpus: Corpus, seed: int = 1, size: int | None = None) -> Splits:
    """All rows at once."""
    return {split: list(drawn) for split, drawn in rows(corpus, seed, size).items()}
