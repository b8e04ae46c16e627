"""Batches: the padded ids of some rows of a store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.boxes import Regions
from regard.data.copies import extended_size, without_end
from regard.data.fields import Field
from regard.data.guides import dense_boxes, dense_links
from regard.data.store import Sequences, Store
from regard.data.tokenizer import END, PAD

Integers = npt.NDArray[np.int64]


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
    return Column(values.copy() if values.ndim > 1 else values.astype(np.int64), times=0)


def offered(side: Sequences, rows: Integers, before: Mapping[str, Column], store: Store | None) -> Column:
    """What copying each source token would write; PAD: nothing."""
    assert store is not None, "what is offered is numbered by a target's vocabulary"
    copies = without_end(pad(*side.gather(rows))[0])
    return Column(copies, size=extended_size(copies, int(store.facts["target_vocabulary"])))


def linked(side: Sequences, rows: Integers, before: Mapping[str, Column], store: Store | None) -> Column:
    """[rows, target, source]: shares of each target token."""
    shape = len(rows), before["target"].values.shape[1], before["source"].values.shape[1]
    return Column(dense_links(*side.gather(rows), shape), times=2)


def boxed(side: Sequences, rows: Integers, before: Mapping[str, Column], store: Store | None) -> Column:
    """[rows, target, region]: shares of each target token's box."""
    assert store is not None, "where regions lie is a fact of the store"
    regions = Regions(*store.facts["settings"]["regions"])
    return Column(dense_boxes(*side.gather(rows), before["target"].values.shape[1], regions), times=2)


# How a column of the store becomes one of a batch
FORMS = {"marked": marked, "plain": plain, "single": single, "offered": offered, "linked": linked, "boxed": boxed}


def column_of(field: Field, rows: Sequence[Any]) -> Column:
    """Of rows that are in no store, such as sentences to translate, as the field has encoded them."""
    lengths = np.array([len(row) for row in rows], np.int64)
    if field.features:
        width = field.width if field.largest is None else np.int64
        values = np.concatenate([np.zeros((0, *field.features), width), *rows])
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
