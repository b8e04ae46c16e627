"""Batches: rows of like length under a token budget, in an order that is a pure function of (seed, epoch)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.copies import extended_size, without_end
from regard.data.fields import Field
from regard.data.guides import dense_links
from regard.data.store import Sequences, Store, random_bits
from regard.data.tokenizer import END, PAD

Integers = npt.NDArray[np.int64]
WINDOW = 16  # batches whose rows may change places, at most
SLACK = 0.04  # the share of padding that a window may cause; half of it on top where one batch causes as much
BANDS = (1, 2, 4, 8)  # target lengths taken together before rows are sorted by source length: more for a small corpus
MANY = 1 << 17  # rows from which on the choice of the band hardly matters


class Column(NamedTuple):
    """One named column of a batch: arrays, or tensors once it is on a device. PAD (0) stands after the end only."""

    values: Any  # [rows, time, *features], integers or floats; [rows, *features] where a row has one value
    lengths: Any = None  # [rows], with END where the field has one; None: as long as all others, or one value a row
    size: int | None = None  # of the extended vocabulary: the target's, and the most unknown words that a row has
    times: int = 1  # dimensions of time: none for a value a row, two for links


@dataclass(frozen=True)
class Batch:
    """Columns by name: what a model reads and what it is to write. Copies and links are columns too."""

    columns: Mapping[str, Column]
    rows: Integers | None = None  # where these stand in the store

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def get(self, name: str) -> Column | None:
        return self.columns.get(name)


def reading(source: Any, lengths: Any = None, copies: Any = None, size: int | None = None, target: Any = None) -> Batch:
    """A batch of sources, and of targets where they are known; `copies` number what copying each source token would write."""
    columns = {"source": Column(source, lengths)}
    columns |= {} if target is None else {"target": Column(target)}
    return Batch(columns if copies is None else columns | {"copies": Column(copies, size=size)})


class Epoch:
    """The batches of one epoch, each an array of rows."""

    def __init__(self, rows: Integers, cuts: Integers, order: Integers) -> None:
        self.rows = rows
        self.cuts = cuts
        self.order = order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, index: int) -> Integers:
        place = self.order[index]
        return self.rows[self.cuts[place] : self.cuts[place + 1]]


class BatchPlan:
    """Every row once an epoch; rows * longest side <= batch_tokens, unless one row alone is longer.

    Rows are sorted by length and cut once, so all epochs have the same number of batches and a step is found by
    division. Between epochs, rows of equal length change places, then all rows of a window do: a window is cut so that
    any of its rows may stand in any of its batches.
    """

    def __init__(
        self,
        source_lengths: npt.NDArray[Any],
        target_lengths: npt.NDArray[Any],
        batch_tokens: int,
        seed: int,
        rows: npt.NDArray[Any] | None = None,
    ) -> None:
        rows = np.arange(len(source_lengths)) if rows is None else np.asarray(rows)
        sources, targets = (np.asarray(side)[rows].astype(np.int64) + 1 for side in (source_lengths, target_lengths))
        layouts = [lay_out(sources, targets, batch_tokens, band) for band in (BANDS if len(rows) < MANY else BANDS[1:2])]
        order, self.windows, self.cuts = min(layouts, key=lambda layout: len(layout[2]))
        self.seed = seed
        self.rows: Integers = rows[order].astype(np.int64)
        self.shapes = group_numbers(sources[order], targets[order])
        self.latest: tuple[int, Epoch] | None = None

    def __len__(self) -> int:
        """Batches in each epoch."""
        return len(self.cuts) - 1

    def epoch(self, number: int) -> Epoch:
        if self.latest is None or self.latest[0] != number:
            self.latest = number, self.arrange(number)
        return self.latest[1]

    def arrange(self, number: int) -> Epoch:
        random = random_bits(self.seed, number)
        rows = self.rows[shuffled_within(self.shapes, random)]
        rows = rows[shuffled_within(self.windows, random)]
        return Epoch(rows, self.cuts, np.argsort(random.random_raw(len(self)), kind="stable"))

    def locate(self, step: int) -> tuple[int, int]:
        """The epoch of a step (both from 0), and the batch in it."""
        return divmod(step, len(self))

    def batch(self, step: int) -> Integers:
        """The rows of a step, counted over all epochs."""
        epoch, index = self.locate(step)
        return self.epoch(epoch)[index]


def lay_out(sources: Integers, targets: Integers, budget: int, band: int) -> tuple[Integers, Integers, Integers]:
    """The order of rows by length, a snake without jumps, with its windows and cuts."""
    bands = targets // band
    keys = targets, np.where(bands % 2, sources, -sources), bands
    narrow = np.int16 if max(sources.max(initial=0), targets.max(initial=0)) < 1 << 15 else np.int64  # sorted in linear time
    order = np.lexsort([key.astype(narrow) for key in keys])
    windows, cuts = cut(sources[order], targets[order], budget)
    return order, windows, cuts


def group_numbers(sources: Integers, targets: Integers) -> Integers:
    """Number the runs of equal shapes."""
    change = (np.diff(sources) != 0) | (np.diff(targets) != 0)
    return np.concatenate([np.zeros(min(len(sources), 1), np.int64), np.cumsum(change)])


def shuffled_within(groups: Integers, random: np.random.Philox) -> Integers:
    """An order in which every group keeps its places. Raw bits and a stable sort: alike in every NumPy."""
    keys = (groups.astype(np.uint64) << np.uint64(32)) | (random.random_raw(len(groups)) >> np.uint64(32))
    return np.argsort(keys, kind="stable")


def cut(sources: Integers, targets: Integers, budget: int) -> tuple[Integers, Integers]:
    """The window of each row, and where batches begin and end."""
    windows, cuts = [], [np.zeros(1, np.int64)]
    for number, (begin, end, capacity) in enumerate(find_windows(sources, targets, budget)):
        windows.append(np.full(end - begin, number))
        batches = -(-(end - begin) // capacity)
        cuts.append(begin + (end - begin) * np.arange(1, batches + 1) // batches)
    return np.concatenate([np.zeros(0, np.int64), *windows]), np.concatenate(cuts)


def find_windows(sources: Integers, targets: Integers, budget: int) -> Iterator[tuple[int, int, int]]:
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


def window_rows(sources: Integers, targets: Integers, budget: int) -> tuple[int, int]:
    """How many of these rows make a window, and the longest side among them."""
    width, height = np.maximum.accumulate(sources), np.maximum.accumulate(targets)
    tallest = np.maximum(width, height)
    count = np.arange(1, len(width) + 1)
    waste = 1 - np.cumsum(sources + targets) / (count * (width + height))
    one_batch = max(int(np.searchsorted(count * tallest, budget, side="right")), 1)
    tolerable = (waste <= max(SLACK, waste[one_batch - 1] + SLACK / 2)) & (count * tallest <= WINDOW * budget)
    rows = max(int(np.flatnonzero(tolerable)[-1]) + 1 if tolerable.any() else 1, one_batch)
    return rows, int(tallest[rows - 1])


def collate(store: Store, rows: npt.NDArray[Any]) -> Batch:
    rows = np.asarray(rows, np.int64)
    columns: dict[str, Column] = {}
    for name, side in store.columns.items():
        columns[name] = FORMS[side.form](side, rows, columns, store)
    return Batch(columns, rows)


def marked(side: Sequences, rows: Integers, before: Mapping[str, Column], store: Store | None) -> Column:
    """Tokens, END, PAD ..."""
    return Column(*pad(*side.gather(rows)))


def plain(side: Sequences, rows: Integers, before: Mapping[str, Column], store: Store | None) -> Column:
    """Values one after the other, nothing added."""
    values, lengths = side.gather(rows)
    matrix = np.zeros(
        (len(rows), int(lengths.max(initial=0)), *values.shape[1:]), np.float32 if values.dtype.kind == "f" else np.int64
    )
    matrix[np.arange(matrix.shape[1]) < lengths[:, None]] = values
    return Column(matrix, lengths)


def single(side: Sequences, rows: Integers, before: Mapping[str, Column], store: Store | None) -> Column:
    """One value a row."""
    values, _ = side.gather(rows)
    return Column(values if values.ndim > 1 else values.astype(np.int64), times=0)


def offered(side: Sequences, rows: Integers, before: Mapping[str, Column], store: Store | None) -> Column:
    """What copying each source token would write; PAD: nothing."""
    assert store is not None, "what is offered is numbered by a target's vocabulary"
    copies = without_end(pad(*side.gather(rows))[0])
    return Column(copies, size=extended_size(copies, int(store.facts["target_vocabulary"])))


def linked(side: Sequences, rows: Integers, before: Mapping[str, Column], store: Store | None) -> Column:
    """[rows, target, source]: shares of each target token."""
    shape = len(rows), before["target"].values.shape[1], before["source"].values.shape[1]
    return Column(dense_links(*side.gather(rows), shape), times=2)


# How a column of the store becomes one of a batch
FORMS = {"marked": marked, "plain": plain, "single": single, "offered": offered, "linked": linked}


def column_of(field: Field, rows: Sequence[Any]) -> Column:
    """Of rows that are in no store, such as sentences to translate, as the field has encoded them."""
    lengths = np.array([len(row) for row in rows], np.int64)
    if field.features:
        values = np.concatenate([np.zeros((0, *field.features), field.width), *rows])
    else:
        values = np.array([value for row in rows for value in row], np.int64)
    side = Sequences(values, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), field.form, field.marks)
    return FORMS[field.form](side, np.arange(len(rows)), {}, None)


def pad_to_multiple(batch: Batch, rows: int, columns: int, written: str) -> Batch:
    """The same batch with numbers of rows and columns that these divide, so that few shapes come again and again. A row more
    has nothing to say: what is read is END or 0, what is to be written is empty."""
    return Batch({name: padded(one, rows, columns, name != written) for name, one in batch.columns.items()}, batch.rows)


def padded(column: Column, rows: int, columns: int, read: bool) -> Column:
    given, times = len(column.values), range(1, 1 + column.times)
    shape = [up(given, rows), *column.values.shape[1:]]
    for time in times:
        shape[time] = up(shape[time], columns)
    values = wider(column.values, *shape)
    lengths = None if column.lengths is None else wider(column.lengths, shape[0])
    if lengths is not None and read:
        lengths[given:] = 1
        if values.dtype == np.int64:
            values[given:, 0] = END
    return Column(values, lengths, None if column.size is None else up(column.size, columns), column.times)


def up(number: int, step: int) -> int:
    return -(-number // step) * step


def wider(array: npt.NDArray[Any], *shape: int) -> npt.NDArray[Any]:
    """PAD (0) all around."""
    result = np.full(shape, PAD, array.dtype)
    result[tuple(map(slice, array.shape))] = array
    return result


def pad(tokens: npt.NDArray[Any], lengths: Integers) -> tuple[Integers, Integers]:
    """Sequences that stand one after the other -> a padded matrix with END after each, and lengths with END."""
    columns = np.arange(int(lengths.max(initial=0)) + 1)
    matrix = np.full((len(lengths), len(columns)), PAD, np.int64)
    matrix[columns < lengths[:, None]] = tokens
    matrix[np.arange(len(lengths)), lengths] = END
    return matrix, lengths + 1


def pad_lists(sequences: Sequence[Sequence[int]]) -> tuple[Integers, Integers]:
    """The same for ids that are in no store, such as sentences to translate."""
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    return pad(np.array([token for sequence in sequences for token in sequence], np.int64), lengths)
