"""Rows on their way into a token store: encoded, counted, appended to two files a column."""

from collections.abc import Mapping, Sequence
from io import BufferedWriter
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from regard.data.copies import extended_rows
from regard.data.fields import Field, Problems, tokenizer_of
from regard.data.guides import Guides
from regard.data.matching import as_faults, mismatches
from regard.data.readers import Fault, Rows
from regard.recipe import Pairs

WIDTHS = ("<u2", "<i4", "<f4", "|u1")  # of integers the first where the vocabulary fits
Integers = npt.NDArray[np.int64]


class ColumnWriter:
    """Appends rows to one column's two files."""

    def __init__(self, folder: Path, name: str, width: str, form: str, marks: int = 0, features: tuple[int, ...] = ()) -> None:
        self.name, self.form, self.marks, self.features, self.width = name, form, marks, features, np.dtype(width)
        self.values: BufferedWriter = (folder / f"{name}.tokens").open("wb")
        self.offsets: BufferedWriter = (folder / f"{name}.offsets").open("wb")
        self.offsets.write(np.zeros(1, "<i8").tobytes())
        self.end = 0

    def append(self, rows: Sequence[Any], lengths: Integers) -> None:
        ends = self.end + np.cumsum(lengths)
        self.end += int(lengths.sum())
        if self.features:
            for row in rows:
                self.values.write(np.ascontiguousarray(row, self.width).tobytes())
        else:
            self.values.write(np.fromiter(chain.from_iterable(rows), self.width, int(lengths.sum())).tobytes())
        self.offsets.write(ends.astype("<i8").tobytes())

    def close(self) -> None:
        self.values.close()
        self.offsets.close()

    @property
    def facts(self) -> dict[str, Any]:
        shape = {"marks": self.marks, "features": list(self.features)}
        return {"name": self.name, "width": self.width.str, "form": self.form, **shape}


def integers(largest: int) -> str:
    return WIDTHS[0] if largest <= 1 << 16 else WIDTHS[1]


class Writer:
    """Turns blocks of rows into arrays, and counts them."""

    def __init__(
        self, folder: Path, fields: Mapping[str, Field], max_length: int, copying: bool, guides: Guides | None
    ) -> None:
        self.fields, self.copying, self.guides, self.max_length = fields, copying, guides, max_length
        more = max_length if copying else 0  # words that a row may add to the target's vocabulary
        self.columns = {
            name: ColumnWriter(folder, name, self.width(name, field, more), field.form, field.marks, field.features)
            for name, field in fields.items()
        }
        if copying:
            width = integers(len(tokenizer_of(fields["target"])) + more)
            self.columns["copies"] = ColumnWriter(folder, "copies", width, "offered")
        if guides is not None:
            width = "<f4" if guides.features else integers(max_length)
            self.columns["links"] = ColumnWriter(folder, "links", width, guides.form, features=guides.features)
        self.lines: BinaryIO = (folder / "lines").open("wb")
        self.rows_in = self.rows_used = 0

    def width(self, name: str, field: Field, more: int) -> str:
        return field.width if field.largest is None else integers(field.largest + (more if name == "target" else 0))

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *error: object) -> None:
        for column in self.columns.values():
            column.close()
        self.lines.close()

    def append(self, rows: Rows, files: Pairs) -> tuple[list[Fault], list[Fault]]:
        """Write what can be used and is short enough; the faults say what is not."""
        arrays, wrong = self.encode(rows, files)
        lengths = {name: np.fromiter(map(len, each), np.int64, len(each)) for name, each in arrays.items()}
        wrong += self.unlike(rows, files, lengths, {fault.line for fault in wrong})
        long = np.maximum.reduce([lengths[name] for name in self.fields]) > self.max_length
        bad = {fault.line for fault in wrong}
        use = np.array([line not in bad for line in rows.lines], np.bool_) & ~long if bad else ~long
        for name, column in self.columns.items():
            each = arrays[name] if use.all() else [arrays[name][row] for row in np.flatnonzero(use)]
            column.append(each, lengths[name][use])
        self.lines.write(np.asarray(rows.lines, "<i8")[use].tobytes())
        self.rows_in += len(rows.lines) + len(rows.faults)
        self.rows_used += int(use.sum())
        return wrong, [
            self.too_long(files, rows, int(row), lengths) for row in np.flatnonzero(long) if rows.lines[row] not in bad
        ]

    def encode(self, rows: Rows, files: Pairs) -> tuple[dict[str, Any], list[Fault]]:
        """The positions of each row, by column, and rows whose values no field can read."""
        arrays, faults = dict[str, Any](), list[Fault]()
        if self.copying:
            source, target = (tokenizer_of(self.fields[name]) for name in ("source", "target"))
            offers, targets = extended_rows(rows.columns["source"], rows.columns["target"], source, target)
            arrays = {"target": targets, "copies": [offer.ids for offer in offers]}
        for name, field in self.fields.items():
            problems = Problems()
            if name not in arrays:
                arrays[name], problems = field.encode(field.located(rows.columns[name], files.file_of(name).parent))
            faults += [Fault(files.file_of(name), rows.lines[row], problem) for row, problem in problems.items()]
        if self.guides is not None:
            arrays["links"] = self.guides.positions(rows)
        return arrays, faults

    def unlike(self, rows: Rows, files: Pairs, lengths: Mapping[str, Integers], known: set[int]) -> list[Fault]:
        """Rows of a column that goes position by position with another, and does not."""
        found = as_faults(files, rows, mismatches(self.fields, lengths))
        return [fault for fault in found if fault.line not in known]

    def too_long(self, files: Pairs, rows: Rows, row: int, lengths: Mapping[str, Integers]) -> Fault:
        name = next(name for name in self.fields if lengths[name][row] > self.max_length)
        problem = f"too long: {lengths[name][row]} tokens, data.max_length is {self.max_length}"
        return Fault(files.file_of(name), rows.lines[row], problem)

    def facts(self) -> dict[str, Any]:
        counts = {"rows_in": self.rows_in, "rows_used": self.rows_used, "rows_reported": self.rows_in - self.rows_used}
        unguided = {} if self.guides is None else {"rows_unguided": self.guides.left_out}
        vocabulary = {"target_vocabulary": len(tokenizer_of(self.fields["target"]))} if self.copying else {}
        return {**counts, **unguided, **vocabulary, "columns": [column.facts for column in self.columns.values()]}
