"""The token store: a corpus as ids on disk, memory-mapped, checksummed, made in constant memory, rebuilt when stale."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.data.boxes import Regions
from regard.data.fields import Field, Image, read_blocks, tokenizer_of
from regard.data.folder import folder_digest
from regard.data.guides import BoxGuides, Guides, LinkGuides
from regard.data.pages import Pages, RowLengths
from regard.data.readers import BadRows, read_rows
from regard.data.sealed import file_digest, sealed, sweep, verify
from regard.data.writer import WIDTHS, Writer
from regard.errors import DamagedError, DataError, UserError
from regard.recipe import Pairs

FORMAT = 3
HELD_OUT = 1000  # rows for validation, at most, unless a recipe says how many
Integers = npt.NDArray[np.int64]


class Sequences:
    """One column: the positions of all rows one after the other, and where each row begins."""

    def __init__(self, values: npt.NDArray[Any], offsets: Integers, form: str = "marked", marks: int = 1) -> None:
        self.values = values
        self.offsets = offsets
        self.form, self.marks = form, marks  # how it becomes a column of a batch, and how many positions that adds
        self.lengths, self.pages = RowLengths(offsets), Pages(values)

    @classmethod
    def open(cls, folder: Path, facts: Mapping[str, Any]) -> "Sequences":
        name, width, features = facts["name"], facts["width"], [int(size) for size in facts["features"]]
        if width not in WIDTHS:
            raise DamagedError(f"{folder / 'manifest.json'}: values of width {width!r}")
        values = mapped(folder / f"{name}.tokens", np.dtype(str(width))).reshape(-1, *features)
        return cls(values, mapped(folder / f"{name}.offsets", np.dtype("<i8")), str(facts["form"]), int(facts["marks"]))

    def __getitem__(self, row: int) -> npt.NDArray[Any]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    def gather(self, rows: Integers) -> tuple[npt.NDArray[Any], Integers]:
        """The positions of these rows one after the other, and how many each has."""
        begins, lengths = self.lengths.spans(rows)
        return self.pages.stretches(begins, lengths), lengths


def mapped(path: Path, width: np.dtype[Any]) -> npt.NDArray[Any]:
    if path.stat().st_size == 0:  # cannot be mapped
        return np.empty(0, width)
    return np.memmap(path, width, mode="r")


class Store:
    """Columns of arrays; a row keeps its place for as long as the store lives."""

    def __init__(self, columns: Mapping[str, Sequences], lines: Integers, facts: dict[str, Any]) -> None:
        self.columns = columns  # a model's own; `copies` and `links` where they are asked for
        self.lines = lines  # where each row stands in its file, from 1
        self.facts = facts  # rows_in = rows_used + rows_reported, and what the store was made from

    @classmethod
    def open(cls, directory: Path) -> "Store":
        """An intact store; DamagedError otherwise."""
        facts = verify(directory)
        if facts.get("store") != FORMAT:
            raise DamagedError(f"{directory / 'manifest.json'}: not a token store of format {FORMAT}")
        columns = {each["name"]: Sequences.open(directory, each) for each in facts["columns"]}  # in their order
        return cls(columns, mapped(directory / "lines", np.dtype("<i8")), facts)

    @classmethod
    def build(
        cls, directory: Path, files: Pairs, fields: Mapping[str, Field], *, max_length: int, bad_rows: BadRows,
        copying: bool = False, links: bool = False, regions: Regions | None = None,
    ) -> "Store":  # fmt: skip
        """`copying` adds what each source offers to be copied, `links` the tokens that `files.alignment` links or the boxes of
        `files.boxes`, for a model that looks at these regions of images."""
        guides = guides_of(files, fields, max_length) if links else None
        facts = {
            "store": FORMAT,
            "files": [describe_file(path) for path in files_of(files, links)],
            "settings": settings(files, fields, max_length, bad_rows, copying, links, regions),
        }
        with sealed(directory, facts) as folder:
            with Writer(folder, fields, max_length, copying, guides) as writer:
                for rows in read_blocks(files, fields):
                    bad_rows.add(rows.faults)
                    wrong, long = writer.append(rows, files)
                    bad_rows.add(wrong)
                    bad_rows.skip(long)
            if guides is not None:
                guides.finish(files.files)
            facts |= writer.facts()
        return cls.open(directory)

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, column: str) -> Sequences:
        return self.columns[column]

    def lengths(self, column: str | None) -> RowLengths | npt.NDArray[np.int32]:
        """Positions of each row, marks not counted; none of a column that there is not."""
        return np.zeros(len(self), np.int32) if column is None else self.columns[column].lengths

    def positions(self, column: str, rows: Integers) -> int:
        """Of these rows together, as a batch has them."""
        side = self.columns[column]
        return int(side.lengths[rows].sum()) + side.marks * len(rows)


def guides_of(files: Pairs, fields: Mapping[str, Field], max_length: int) -> Guides:
    """Links where there are some; boxes are for images."""
    path, images, target = guide_of(files), fields["source"], tokenizer_of(fields["target"])
    if files.alignment is not None:
        return LinkGuides(path, tokenizer_of(images), target, max_length)
    if not isinstance(images, Image):
        raise UserError(
            f"{path}: boxes are places in images, and the source is of kind `{images.kind}`: name data.train.alignment"
        )
    return BoxGuides(path, images, files.file_of("source").parent, target, max_length)


def guide_of(pairs: Pairs) -> Path:
    path = pairs.alignment or pairs.boxes
    if path is None:
        told = "name their file in data.train.alignment (or, in images, the boxes of words in data.train.boxes)"
        raise DataError(f"guided attention needs given alignments: {told}")
    return path


def files_of(pairs: Pairs, links: bool) -> tuple[Path, ...]:
    """What is read; alignments or boxes only where they are asked for."""
    return (*pairs.files, guide_of(pairs)) if links else pairs.files


def settings(
    files: Pairs, fields: Mapping[str, Field], max_length: int, bad_rows: BadRows, copying: bool, links: bool,
    regions: Regions | None,
) -> dict[str, Any]:  # fmt: skip
    """What beside the files decides on the values."""
    return {
        "columns": {name: str(files.named.get(name)) for name in fields} if files.pairs else list(fields),
        "fields": {name: field.digest for name, field in fields.items()},
        "max_length": max_length,
        "on_bad_row": bad_rows.policy,
        "copying": copying,
        "links": links,
        **({} if regions is None else {"regions": list(regions)}),
    }


def describe_file(path: Path) -> dict[str, Any]:
    return {**glance(path), "sha256": digest_of(path)}


def digest_of(path: Path) -> str:
    return folder_digest(path) if path.is_dir() else file_digest(path)


def glance(path: Path) -> dict[str, Any]:
    """What can be seen without reading the file."""
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os.strerror(error.errno or 0)}") from None
    return {"path": str(path.absolute()), "size": status.st_size, "modified": status.st_mtime_ns}


def unchanged(path: Path, recorded: dict[str, Any]) -> bool:
    now = glance(path)
    if not path.is_dir() and all(now[key] == recorded[key] for key in now):
        return True
    return bool(now["size"] == recorded["size"] and digest_of(path) == recorded["sha256"])


def prepare(
    directory: Path, files: Pairs, fields: Mapping[str, Field], *, max_length: int, bad_rows: BadRows,
    copying: bool = False, links: bool = False, regions: Regions | None = None,
) -> Store:  # fmt: skip
    """The store at `directory` if it is intact and made from just this; built anew otherwise."""
    wanted = settings(files, fields, max_length, bad_rows, copying, links, regions)
    try:
        store = Store.open(directory)
        if store.facts["settings"] == wanted and all(map(unchanged, files_of(files, links), store.facts["files"])):
            return store
    except DamagedError:
        pass  # it is a cache: make it again
    sweep(directory.absolute().parent)
    asked: dict[str, Any] = {"max_length": max_length, "bad_rows": bad_rows, "copying": copying}
    return Store.build(directory, files, fields, **asked, links=links, regions=regions)


def random_bits(seed: int, stream: int) -> np.random.Philox:
    """Independent bits for every (seed, stream); the key is an array, as NumPy rounds large Python integers."""
    return np.random.Philox(key=np.array([seed % 2**64, stream % 2**64], np.uint64))


def held_out_number(rows: int, number: int | None) -> int:
    """Rows to keep aside for validation: a tenth, at most 1,000; or the number that was asked for, up to half of the rows."""
    if number is not None and 2 * number <= rows:
        return number
    return max(min(rows // 10, HELD_OUT), min(rows - 1, 1))


def line_hashes(lines: Integers, seed: int) -> npt.NDArray[np.uint64]:
    """A number for each line of a file, a function of the seed and of nothing else (splitmix64, Steele et al. 2014)."""
    golden = 0x9E3779B97F4A7C15
    mixed = lines.astype(np.uint64) * np.uint64(golden) + np.uint64((seed * golden + golden) % 2**64)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def held_out(lines: Integers, number: int | None, seed: int) -> npt.NDArray[np.bool_]:
    """Which rows, by the lines they stand in, to keep aside: those with the smallest hashes. So a row stays aside when others
    come or go, and a survey of the data can leave such rows out before it knows how many there are."""
    order = np.argsort(line_hashes(np.asarray(lines, np.int64), seed), kind="stable")
    mask = np.zeros(len(lines), np.bool_)
    mask[order[: held_out_number(len(lines), number)]] = True
    return mask


def texts_of(store: Store, files: Pairs, fields: Mapping[str, Field], rows: Sequence[int]) -> list[tuple[str, ...]]:
    """What these rows say in the files the store was made from: a value for each column, in their order."""
    wanted = {int(store.lines[row]) for row in rows}
    found: dict[int, tuple[str, ...]] = {}
    for block in read_rows(files):
        values = (field.located(block.columns[name], files.file_of(name).parent) for name, field in fields.items())
        for line, *row in zip(block.lines, *values, strict=True):
            if line in wanted:
                found[line] = tuple(row)
    return [found[int(store.lines[row])] for row in rows]
