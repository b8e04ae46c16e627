"""Which rows stand in which batch: rows of like length under a token budget, in an order that (seed, epoch) decides alone."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.pages import RowLengths
from regard.data.store import random_bits

Integers = npt.NDArray[np.int64]
Small = npt.NDArray[np.int32]
SHARD = 1 << 20  # rows that are laid out together
Lengths = npt.NDArray[Any] | RowLengths
ORDER = 1 << 63  # the streams of random bits for the order of shards begin here
WINDOW = 16  # batches whose rows may change places, at most
SLACK = 0.04  # the share of padding that a window may cause; half of it on top where one batch causes as much
BANDS = (1, 2, 4, 8)  # target lengths taken together before rows are sorted by source length: more for a small corpus
MANY = 1 << 17  # rows from which on the choice of the band hardly matters


class Shard(NamedTuple):
    """Rows by length, the runs of equal shapes among them, windows, and where batches begin and end."""

    number: int
    rows: Small | Integers
    shapes: Small
    windows: Small
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
        self.chosen = None if rows is None else narrow(np.asarray(rows))
        self.count = len(source_lengths) if rows is None else len(rows)
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
        places = np.arange(number, self.count, self.shards)
        rows = narrow(places) if self.chosen is None else self.chosen[places]
        sources, targets = (np.asarray(side[rows]).astype(np.int32) + 1 for side in self.lengths)
        bands = BANDS if len(rows) < MANY else BANDS[1:2]
        order, windows, cuts = min(
            (lay_out(sources, targets, self.batch_tokens, band) for band in bands), key=lambda one: len(one[2])
        )
        return Shard(number, rows[order], group_numbers(sources[order], targets[order]), windows, cuts)

    def epoch(self, number: int, shard: int = 0) -> Epoch:
        """The batches of one shard."""
        if self.latest is None or self.latest[:2] != (number, shard):
            self.latest = None
            self.shard = self.shard if self.shard.number == shard else self.lay_out(shard)
            self.latest = number, shard, self.arrange(number)
        return self.latest[2]

    def arrange(self, number: int) -> Epoch:
        random = random_bits(self.seed, number * self.shards + self.shard.number)
        rows = self.shard.rows[shuffled_within(self.shard.shapes, random)]
        rows = rows[shuffled_within(self.shard.windows, random)]
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


def narrow(rows: npt.NDArray[Any]) -> Small | Integers:
    """Half as many bytes where they are enough."""
    return rows.astype(np.int32) if rows.max(initial=0) < 1 << 31 else rows.astype(np.int64)


def lay_out(sources: Small, targets: Small, budget: int, band: int) -> tuple[Integers, Small, Integers]:
    """The order of rows by length, a snake without jumps, with its windows and cuts."""
    bands = targets // band
    keys = targets, np.where(bands % 2, sources, -sources), bands
    width = np.int16 if max(sources.max(initial=0), targets.max(initial=0)) < 1 << 15 else np.int64  # sorted in linear time
    order = np.lexsort([key.astype(width) for key in keys])
    windows, cuts = cut(sources[order], targets[order], budget)
    return order, windows, cuts


def group_numbers(sources: Small, targets: Small) -> Small:
    """Number the runs of equal shapes."""
    change = (np.diff(sources) != 0) | (np.diff(targets) != 0)
    return np.concatenate([np.zeros(min(len(sources), 1), np.int32), np.cumsum(change, dtype=np.int32)])


def shuffled_within(groups: Small, random: np.random.Philox) -> Integers:
    """An order in which every group keeps its places. Raw bits and a stable sort: alike in every NumPy."""
    keys = groups.astype(np.uint64) << np.uint64(32)
    keys |= random.random_raw(len(groups)) >> np.uint64(32)
    return np.argsort(keys, kind="stable")


def cut(sources: Small, targets: Small, budget: int) -> tuple[Small, Integers]:
    """The window of each row, and where batches begin and end."""
    windows, cuts = [], [np.zeros(1, np.int64)]
    for number, (begin, end, capacity) in enumerate(find_windows(sources, targets, budget)):
        windows.append(np.full(end - begin, number, np.int32))
        batches = -(-(end - begin) // capacity)
        cuts.append(begin + (end - begin) * np.arange(1, batches + 1) // batches)
    return np.concatenate([np.zeros(0, np.int32), *windows]), np.concatenate(cuts)


def find_windows(sources: Small, targets: Small, budget: int) -> Iterator[tuple[int, int, int]]:
    """(begin, end, rows a batch may have): as wide as SLACK and WINDOW allow, made of full batches where it can be."""
    longest = np.maximum(sources, targets)
    begin = 0
    while begin < len(longest):
        part = slice(begin, begin + max(WINDOW * budget // int(longest[begin]), 1))
        rows, tallest = window_rows(sources[part], targets[part], budget)
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
