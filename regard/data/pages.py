"""Files mapped into memory, of which what was read is given back: an epoch would count the whole store as ours otherwise."""

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

KEPT = 1 << 24  # bytes of a file that may stay mapped
AROUND = 1 << 16  # bytes that come with each place that is read, for the system maps its neighbours too
PART = 1 << 16  # rows whose lengths are read at once


class Pages:
    """An array, mapped or not, of which some places are read at a time."""

    def __init__(self, array: npt.NDArray[Any]) -> None:
        self.array = array
        self.file: mmap.mmap | None = getattr(array, "_mmap", None) if array.nbytes > KEPT else None
        self.read = 0

    def at(self, places: npt.NDArray[np.integer], stretches: int | None = None) -> npt.NDArray[Any]:
        """A copy of what is there; `stretches` tells in how many parts of the file, if these are fewer than the places."""
        values: npt.NDArray[Any] = self.array[places]
        self.read += len(places) if stretches is None else stretches
        if self.file is not None and self.read * AROUND > KEPT:
            self.file.madvise(mmap.MADV_DONTNEED)  # the system's cache still has them
            self.read = 0
        return values


class RowLengths:
    """How many positions each row has, read off where rows begin."""

    def __init__(self, offsets: npt.NDArray[np.int64]) -> None:
        self.begins = Pages(offsets)

    def __len__(self) -> int:
        return len(self.begins.array) - 1

    def __getitem__(self, rows: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        parts = [rows[begin : begin + PART] for begin in range(0, max(len(rows), 1), PART)]
        return np.concatenate([(self.begins.at(part + 1) - self.begins.at(part)).astype(np.int32) for part in parts])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.diff(self.begins.array).astype(np.int32 if dtype is None else dtype)
