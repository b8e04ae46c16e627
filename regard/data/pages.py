"""Arrays in files. Small ones are mapped into memory; of large ones only what is asked for is read, as pages that were touched
would count as ours until the system wants them back."""

import mmap
import os
import weakref
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

KEPT = 1 << 24  # bytes of a file that may stay mapped
FEW = 1 << 12  # rows whose lengths are read one by one; more are read through the map, which is then given back
PART = 1 << 16  # rows of which that is done at once
Integers = npt.NDArray[np.int64]


class Pages:
    """An array of which some stretches are read at a time."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array
        self.file: int | None = None
        if array.nbytes > KEPT and isinstance(array, np.memmap):
            self.file = os.open(str(array.filename), os.O_RDONLY)
            weakref.finalize(self, os.close, self.file)

    def stretches(self, begins: Integers, lengths: Integers) -> npt.NDArray[Any]:
        """A copy of what stands there, one stretch after the other."""
        if self.file is None:
            places = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
            found: npt.NDArray[Any] = self.array[places]
            return found
        width = self.array[:0].dtype.itemsize * int(np.prod(self.array.shape[1:]))
        parts = map(os.pread, repeat(self.file), (lengths * width).tolist(), (begins * width).tolist())
        return np.frombuffer(b"".join(parts), self.array.dtype).reshape(-1, *self.array.shape[1:])


class RowLengths:
    """How many positions each row has, read off where rows begin."""

    def __init__(self, offsets: Integers) -> None:
        self.pages = Pages(offsets)

    def __len__(self) -> int:
        return len(self.pages.array) - 1

    def spans(self, rows: npt.NDArray[np.integer]) -> tuple[Integers, Integers]:
        """Where these rows begin, and how many positions each has."""
        if self.pages.file is None:
            begins, ends = self.pages.array[rows], self.pages.array[rows + 1]
        else:
            both = self.pages.stretches(np.asarray(rows, np.int64), np.full(len(rows), 2))
            begins, ends = both[::2], both[1::2]
        return begins, ends - begins

    def __getitem__(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        if len(rows) <= FEW:
            return self.spans(rows)[1].astype(np.int32)
        lengths = np.empty(len(rows), np.int32)
        for begin in range(0, len(rows), PART):
            lengths[begin : begin + PART] = self.mapped(rows[begin : begin + PART])
        return lengths

    def mapped(self, rows: npt.NDArray[np.integer]) -> Integers:
        offsets = self.pages.array
        lengths: Integers = offsets[rows + 1] - offsets[rows]
        if self.pages.file is not None:
            offsets._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]  # the system's cache still has them
        return lengths

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.diff(self.pages.array).astype(np.int32 if dtype is None else dtype)
