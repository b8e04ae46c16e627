"""Columns whose values are files of their own, or rows of one: vectors in `.npy`; images are in `pictures.py`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from regard.data.field import FEWEST, Field, FieldFitter, Problems, Shape
from regard.data.lines import Lines
from regard.errors import DataError, UserError
from regard.recipe import Section

ROWS = 1 << 12  # of an array that are named at once


class VectorsConfig(Section):
    kind: Literal["vectors"] = "vectors"


class Files(Field):
    """The name of a file a row."""

    from_files = True

    @classmethod
    def located(cls, values: list[str], folder: Path) -> list[str]:
        return [str(folder / value) for value in values]


class Vectors(Files):
    """The name of a `.npy` file a row: [time, elements], as many elements in each."""

    kind, form, Config = "vectors", "plain", VectorsConfig

    def __init__(self, elements: int) -> None:
        self.features = (elements,)

    @classmethod
    def fitter(cls, config: VectorsConfig) -> FieldFitter:
        return FirstFile(lambda path: cls(read_vectors(path).shape[1]))

    @classmethod
    def outline(cls, config: Any) -> Shape:
        return Shape(cls.kind, (FEWEST,))

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, self.features)

    def encode(self, values: Sequence[str]) -> tuple[list[Any], Problems]:
        return read_each(values, lambda path: read_vectors(path, self.features[0]))

    def facts(self) -> dict[str, Any]:
        return {"elements": self.features[0]}

    @classmethod
    def restore(cls, facts: Mapping[str, Any]) -> "Vectors":
        return cls(whole(facts["elements"]))


class FirstFile(FieldFitter):
    """The first file that can be read tells how all must be."""

    def __init__(self, make: Callable[[Path], Field]) -> None:
        self.make = make
        self.field: Field | None = None
        self.problem = "there is none"

    def add(self, values: Sequence[str], column: str) -> None:
        """Files that cannot be read are faults of their rows, which are told with their lines when they are encoded."""
        for value in values if self.field is None else ():
            try:
                self.field = self.make(Path(value))
                return
            except UserError as error:
                self.problem = f"the last was {error}"

    def finish(self) -> Field:
        if self.field is None:
            raise UserError(f"none of the files that the column names can be read: {self.problem}")
        return self.field


def read_each(paths: Sequence[str], read: Callable[[Path], Any]) -> tuple[list[Any], Problems]:
    """What is read from each file; nothing from those that cannot be."""
    rows, problems = list[Any](), Problems()
    for row, path in enumerate(paths):
        try:
            rows.append(read(Path(path)))
        except UserError as error:
            rows.append([])
            problems[row] = str(error)
    return rows, problems


def whole(value: object) -> int:
    if type(value) is not int or not 0 < value < 1 << 20:
        raise ValueError(f"{value!r:.40} is not a size")
    return value


def array_lines(path: Path) -> Iterator[Lines]:
    """The rows of an array as names of values, counted from 1 as lines are: `pictures.npy#1`."""
    count = len(open_array(path))
    for first in range(1, count + 1, ROWS):
        yield Lines(first, [f"{path.name}#{row}" for row in range(first, min(first + ROWS, count + 1))], {})


def read_array(path: Path) -> npt.NDArray[Any]:
    """A `.npy` file, or the row of one that the name asks for, as in `pictures.npy#17`."""
    file, mark, row = str(path).rpartition("#")
    if not (mark and file.endswith(".npy") and row.isdecimal()):
        return np.array(open_array(path))
    array = open_array(Path(file))
    if not 1 <= int(row) <= len(array):
        raise DataError(f"{path}: the array has {len(array):,} rows, counted from 1, and no row {row}")
    return np.array(array[int(row) - 1])


def open_array(path: Path) -> npt.NDArray[Any]:
    """Mapped: nothing is read but the header, which may promise no more than the file holds. Nothing in it is executed."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError, OverflowError) as error:
        raise DataError(f"{path}: not an array in .npy format: {error!s:.120}") from None
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: several arrays (.npz), where one in .npy format is needed")
    if array.ndim == 0:
        raise DataError(f"{path}: one number, and no array")
    return array


def read_vectors(path: Path, elements: int | None = None) -> npt.NDArray[np.float32]:
    """[time, elements]."""
    array = read_array(path)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "fiu":
        raise DataError(f"{path}: numbers in two dimensions (time, elements) are needed, not {array.dtype} {list(array.shape)}")
    if elements is not None and array.shape[1] != elements:
        raise DataError(f"{path}: vectors of {array.shape[1]} elements, and training has {elements}")
    vectors = array.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise DataError(f"{path}: not all values are finite numbers")
    return vectors
