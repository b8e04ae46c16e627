"""Which rows stand in which batch: rows of like length under a token budget, in an order that (seed, epoch) decides alone."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.pages import RowLengths
from regard.data.store import random_bits

Integers = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32] | npt.NDArray[np.int16]
SHARD = 1 << 20  # rows that are laid out together
BLOCK = 1 << 15  # rows that are sorted together: keys and random bits take many times the memory of the rows themselves
Lengths = npt.NDArray[Any] | RowLengths
ORDER = 1 << 63  # the streams of random bits for the order of shards begin here
WINDOW = 16  # batches whose rows may change places, at most
SLACK = 0.04  # the share of padding that a window may cause; half of it on top where one batch causes as much
BANDS = (1, 2, 4, 8)  # target lengths taken together before rows are sorted by source length: more for a small corpus
MANY = 1 << 17  # rows from which on the choice of the band hardly matters


class Shard(NamedTuple):
    """Rows by length; where runs of equal shapes begin among them, where windows do, and where batches begin and end."""

    number: int
    rows: Small | Integers
    shapes: Small
    windows: Integers
    cuts: Integers


class Epoch:
    """The batches of one shard in one epoch, each an array of rows."""

    def __init__(self, rows: Small | Integers, cuts: Integers, order: Integers) -> None:
        self.rows = rows
        self.cuts = cuts
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> Integers:
        place = self.order[index]
        return self.rows[self.cuts[place] : self.cuts[place + 1]].astype(np.int64)


class BatchPlan:
    """Every row once an epoch; rows * longest side <= batch_tokens, unless one row alone is longer.

    Rows are dealt out to shards in turn, so that each is like the whole. The rows of a shard are sorted by length and cut,
    always alike, so all epochs have the same number of batches and a step is found by division. Between epochs, rows of equal
    length change places, then all rows of a window do: a window is cut so that any of its rows may stand in any of its batches.
    An epoch takes one shard after the other, in an order of its own; memory holds one at a time.
    """

    def __init__(
        self,
        source_lengths: Lengths,
        target_lengths: Lengths,
        batch_tokens: int,
        seed: int,
        rows: npt.NDArray[Any] | None = None,
    ) -> None:
        self.lengths, self.batch_tokens, self.seed = (source_lengths, target_lengths), batch_tokens, seed
        self.left_out = np.zeros(0, np.int64) if rows is None else left_out(rows, len(source_lengths))
        self.count = len(source_lengths) - len(self.left_out)
        self.shards = max(-(-self.count // SHARD), 1)
        self.shard = self.lay_out(0)
        self.sizes = [len(self.shard.cuts) - 1]  # batches of each shard
        for number in range(1, self.shards):
            self.sizes.append(len(self.lay_out(number).cuts) - 1)
        self.latest: tuple[int, int, Epoch] | None = None

    def __len__(self) -> int:
        """Batches in each epoch."""
        return sum(self.sizes)

    def lay_out(self, number: int) -> Shard:
        rows = self.dealt(number)
        sources, targets = (narrow(np.asarray(side[rows])) for side in self.lengths)
        bands = BANDS if len(rows) < MANY else BANDS[1:2]
        order, shapes, windows, cuts = min(
            (lay_out(sources, targets, self.batch_tokens, band) for band in bands), key=lambda one: len(one[3])
        )
        return Shard(number, rows[order], shapes, windows, cuts)

    def dealt(self, number: int) -> Small | Integers:
        """The rows of a shard: every n-th of those that are not left out."""
        width: type[np.signedinteger] = np.int32 if len(self.lengths[0]) < 1 << 31 else np.int64
        rows: npt.NDArray[Any] = np.arange(number, self.count, self.shards, width)
        kept_before = (self.left_out - np.arange(len(self.left_out))).astype(width)
        behind = np.searchsorted(rows, kept_before)  # the first row behind each that is left out
        for left, (begin, end) in enumerate(pairwise([*behind.tolist(), len(rows)]), 1):
            rows[begin:end] += left
        return rows

    def epoch(self, number: int, shard: int = 0) -> Epoch:
        """The batches of one shard."""
        if self.latest is None or self.latest[:2] != (number, shard):
            self.latest = None
            self.shard = self.shard if self.shard.number == shard else self.lay_out(shard)
            self.latest = number, shard, self.arrange(number)
        return self.latest[2]

    def arrange(self, number: int) -> Epoch:
        random = random_bits(self.seed, number * self.shards + self.shard.number)
        rows = self.shard.rows.copy()
        shuffle_within(rows, self.shard.shapes, random)
        shuffle_within(rows, self.shard.windows, random)
        return Epoch(rows, self.shard.cuts, np.argsort(random.random_raw(len(self.shard.cuts) - 1), kind="stable"))

    def locate(self, step: int) -> tuple[int, int]:
        """The epoch of a step (both from 0), and the batch in it."""
        return divmod(step, len(self))

    def batch(self, step: int) -> Integers:
        """The rows of a step, counted over all epochs."""
        epoch, index = self.locate(step)
        for shard in np.argsort(random_bits(self.seed, ORDER + epoch).random_raw(self.shards), kind="stable"):
            if index < self.sizes[shard]:
                return self.epoch(epoch, int(shard))[index]
            index -= self.sizes[shard]
        raise AssertionError("locate")


def left_out(rows: npt.NDArray[Any], count: int) -> Integers:
    """Which of so many rows are not among these, which are most of them as a rule: what is kept does not grow with a corpus."""
    assert (rows[1:] > rows[:-1]).all(), "rows in the order of the store, each once"
    mask = np.ones(count, np.bool_)
    mask[rows] = False
    return np.flatnonzero(mask)


def narrow(lengths: npt.NDArray[Any]) -> Small:
    """These lengths, which nobody else holds, with END; in two bytes where two are enough."""
    lengths += 1
    return lengths.astype(np.int16) if lengths.max(initial=0) < 1 << 15 else lengths.astype(np.int32)


def lay_out(sources: Small, targets: Small, budget: int, band: int) -> tuple[Small, Small, Integers, Integers]:
    """The order of rows by length, where runs of equal shapes begin in it, its windows and its cuts."""
    order = by_length(sources, targets, band)
    sources, targets = sources[order], targets[order]
    return order, run_begins(sources, targets), *cut(sources, targets, budget)


def by_length(sources: Small, targets: Small, band: int) -> Small:
    """The order of rows by length, a snake without jumps: one stretch of bands after the other."""
    bands = targets // band
    order, done = np.empty(len(bands), np.int32), 0
    borders = np.unique(np.sort(bands)[::BLOCK])
    for low, high in pairwise([*borders, np.iinfo(np.int32).max]):
        found = np.flatnonzero((bands >= low) & (bands < high))
        source, target, number = sources[found], targets[found], bands[found]
        keys = target, np.where(number % 2, source, -source), number
        order[done : done + len(found)] = found[np.lexsort(keys)]  # in linear time if of two bytes
        done += len(found)
    return order


def run_begins(sources: Small, targets: Small) -> Small:
    """Where runs of equal shapes begin."""
    change = np.ones(len(sources), np.bool_)
    change[1:] = (sources[1:] != sources[:-1]) | (targets[1:] != targets[:-1])
    return np.flatnonzero(change).astype(np.int32)


def shuffle_within(rows: Small | Integers, begins: Small | Integers, random: np.random.Philox) -> None:
    """Rows change places within their groups. Raw bits and a stable sort: alike in every NumPy, and in blocks of any size."""
    for begin, end in blocks(begins, len(rows)):
        inside = begins[np.searchsorted(begins, begin) : np.searchsorted(begins, end)]
        groups = np.zeros(end - begin, np.uint64)
        groups[inside[1:] - begin] = 1
        keys = np.cumsum(groups, out=groups) << np.uint64(32)
        keys |= random.random_raw(end - begin) >> np.uint64(32)
        rows[begin:end] = rows[begin:end][np.argsort(keys, kind="stable")]


def blocks(begins: Small | Integers, count: int) -> Iterator[tuple[int, int]]:
    """Stretches of whole groups, each of BLOCK rows or somewhat more."""
    begin = 0
    while begin < count:
        place = int(np.searchsorted(begins, begin + BLOCK))
        end = int(begins[place]) if place < len(begins) else count
        yield begin, end
        begin = end


def cut(sources: Small, targets: Small, budget: int) -> tuple[Integers, Integers]:
    """Where windows begin, and where batches begin and end."""
    windows, cuts = [], [np.zeros(1, np.int64)]
    for begin, end, capacity in find_windows(sources, targets, budget):
        windows.append(begin)
        batches = -(-(end - begin) // capacity)
        cuts.append(begin + (end - begin) * np.arange(1, batches + 1) // batches)
    return np.array(windows, np.int64), np.concatenate(cuts)


def find_windows(sources: Small, targets: Small, budget: int) -> Iterator[tuple[int, int, int]]:
    """(begin, end, rows a batch may have): as wide as SLACK and WINDOW allow, made of full batches where it can be."""
    begin = 0
    while begin < len(sources):
        part = slice(begin, begin + max(WINDOW * budget // int(max(sources[begin], targets[begin])), 1))
        rows, tallest = window_rows(sources[part].astype(np.int32), targets[part].astype(np.int32), budget)
        capacity = max(budget // tallest, 1)
        rows = max(rows // capacity * capacity, min(rows, capacity))
        yield begin, begin + rows, capacity
        begin += rows


def window_rows(sources: Small, targets: Small, budget: int) -> tuple[int, int]:
    """How many of these rows make a window, and the longest side among them."""
    width, height = np.maximum.accumulate(sources), np.maximum.accumulate(targets)
    tallest = np.maximum(width, height)
    count = np.arange(1, len(width) + 1)
    waste = 1 - np.cumsum(sources + targets) / (count * (width + height))
    one_batch = max(int(np.searchsorted(count * tallest, budget, side="right")), 1)
    tolerable = (waste <= max(SLACK, waste[one_batch - 1] + SLACK / 2)) & (count * tallest <= WINDOW * budget)
    rows = max(int(np.flatnonzero(tolerable)[-1]) + 1 if tolerable.any() else 1, one_batch)
    return rows, int(tallest[rows - 1])
