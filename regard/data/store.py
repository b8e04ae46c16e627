"""The token store: a corpus as ids on disk, memory-mapped, checksummed, made in constant memory, rebuilt when stale."""

import os
from collections.abc import Iterable, Sequence
from io import BufferedWriter
from itertools import chain, compress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from regard.data.readers import BadRows, Fault, Rows, read_pairs
from regard.data.sealed import file_digest, sealed, sweep, verify
from regard.data.tokenizer import Tokenizer
from regard.errors import DamagedError, DataError
from regard.recipe import Pairs

FORMAT = 1
WIDTHS = ("<u2", "<i4")  # the first where the vocabulary fits
Integers = npt.NDArray[np.int64]


class Sequences:
    """One side: all ids in a row, and where each sequence begins."""

    def __init__(self, tokens: npt.NDArray[Any], offsets: Integers) -> None:
        self.tokens = tokens
        self.offsets = offsets
        self.lengths: npt.NDArray[np.int32] = np.diff(offsets).astype(np.int32)

    @classmethod
    def open(cls, folder: Path, side: str, width: object) -> "Sequences":
        if width not in WIDTHS:
            raise DamagedError(f"{folder / 'manifest.json'}: tokens of width {width!r}")
        return cls(mapped(folder / f"{side}.tokens", np.dtype(str(width))), mapped(folder / f"{side}.offsets", np.dtype("<i8")))

    def __getitem__(self, row: int) -> npt.NDArray[Any]:
        return self.tokens[self.offsets[row] : self.offsets[row + 1]]

    def gather(self, rows: Integers) -> tuple[npt.NDArray[Any], Integers]:
        """The ids of these rows one after the other, and how many each has."""
        lengths = self.lengths[rows].astype(np.int64)
        ends = np.cumsum(lengths)
        places = np.repeat(self.offsets[rows] - (ends - lengths), lengths) + np.arange(lengths.sum())
        return self.tokens[places], lengths


def mapped(path: Path, width: np.dtype[Any]) -> npt.NDArray[Any]:
    if path.stat().st_size == 0:  # cannot be mapped
        return np.empty(0, width)
    return np.memmap(path, width, mode="r")


class Store:
    """Pairs of id sequences; a row keeps its place for as long as the store lives."""

    def __init__(self, sources: Sequences, targets: Sequences, lines: Integers, facts: dict[str, Any]) -> None:
        self.sources = sources
        self.targets = targets
        self.lines = lines  # where each row stands in its file, from 1
        self.facts = facts  # rows_in = rows_used + rows_reported, and what the store was made from

    @classmethod
    def open(cls, directory: Path) -> "Store":
        """An intact store; DamagedError otherwise."""
        facts = verify(directory)
        if facts.get("store") != FORMAT:
            raise DamagedError(f"{directory / 'manifest.json'}: not a token store of format {FORMAT}")
        source, target = (Sequences.open(directory, side, facts.get(f"{side}_width")) for side in ("source", "target"))
        return cls(source, target, mapped(directory / "lines", np.dtype("<i8")), facts)

    @classmethod
    def build(
        cls,
        directory: Path,
        pairs: Pairs,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        *,
        max_length: int,
        bad_rows: BadRows,
    ) -> "Store":
        facts = {
            "store": FORMAT,
            "files": [describe_file(path) for path in pairs.files],
            "settings": settings(pairs, source_tokenizer, target_tokenizer, max_length, bad_rows),
        }
        with sealed(directory, facts) as folder:
            with Writer(folder, source_tokenizer, target_tokenizer, max_length) as writer:
                for rows in read_pairs(pairs):
                    bad_rows.add(rows.faults)
                    bad_rows.skip(writer.append(rows, pairs))
            facts |= writer.facts()
        return cls.open(directory)

    def __len__(self) -> int:
        return len(self.sources.lengths)

    def source(self, row: int) -> npt.NDArray[Any]:
        return self.sources[row]

    def target(self, row: int) -> npt.NDArray[Any]:
        return self.targets[row]

    def rows(self, indices: Iterable[int]) -> tuple[list[npt.NDArray[Any]], list[npt.NDArray[Any]]]:
        places = list(indices)
        return [self.sources[row] for row in places], [self.targets[row] for row in places]

    @property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        return self.sources.lengths

    @property
    def target_lengths(self) -> npt.NDArray[np.int32]:
        return self.targets.lengths


class SideWriter:
    """Appends sequences to one side's two files."""

    def __init__(self, folder: Path, side: str, tokenizer: Tokenizer) -> None:
        self.width = np.dtype(WIDTHS[0] if len(tokenizer) <= 1 << 16 else WIDTHS[1])
        self.tokenizer = tokenizer
        self.tokens: BufferedWriter = (folder / f"{side}.tokens").open("wb")
        self.offsets: BufferedWriter = (folder / f"{side}.offsets").open("wb")
        self.offsets.write(np.zeros(1, "<i8").tobytes())
        self.end = 0

    def append(self, ids: Sequence[list[int]], lengths: Integers) -> None:
        ends = self.end + np.cumsum(lengths)
        self.end += int(lengths.sum())
        self.tokens.write(np.fromiter(chain.from_iterable(ids), self.width, int(lengths.sum())).tobytes())
        self.offsets.write(ends.astype("<i8").tobytes())

    def close(self) -> None:
        self.tokens.close()
        self.offsets.close()


class Writer:
    """Turns blocks of rows into ids, and counts them."""

    def __init__(self, folder: Path, source: Tokenizer, target: Tokenizer, max_length: int) -> None:
        self.sides = SideWriter(folder, "source", source), SideWriter(folder, "target", target)
        self.lines: BinaryIO = (folder / "lines").open("wb")
        self.max_length = max_length
        self.rows_in = self.rows_used = 0

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *error: object) -> None:
        for side in (*self.sides, self.lines):
            side.close()

    def append(self, rows: Rows, pairs: Pairs) -> list[Fault]:
        """Write what is short enough; the faults say what is not."""
        ids = self.sides[0].tokenizer.encode(rows.sources), self.sides[1].tokenizer.encode(rows.targets)
        lengths = [np.fromiter(map(len, side), np.int64, len(side)) for side in ids]
        long = np.maximum(*lengths) > self.max_length
        for side, tokens, counts in zip(self.sides, ids, lengths, strict=True):
            side.append(list(compress(tokens, ~long)) if long.any() else tokens, counts[~long])
        self.lines.write(np.asarray(rows.lines, "<i8")[~long].tobytes())
        self.rows_in += len(rows.lines) + len(rows.faults)
        self.rows_used += int((~long).sum())
        return [self.too_long(pairs, rows.lines[row], [int(side[row]) for side in lengths]) for row in np.flatnonzero(long)]

    def too_long(self, pairs: Pairs, line: int, lengths: list[int]) -> Fault:
        side = 0 if lengths[0] > self.max_length else 1
        return Fault(
            pairs.files[side % len(pairs.files)],
            line,
            f"too long: {lengths[side]} tokens, data.max_length is {self.max_length}",
        )

    def facts(self) -> dict[str, Any]:
        counts = {"rows_in": self.rows_in, "rows_used": self.rows_used, "rows_reported": self.rows_in - self.rows_used}
        return {**counts, "source_width": self.sides[0].width.str, "target_width": self.sides[1].width.str}


def settings(pairs: Pairs, source: Tokenizer, target: Tokenizer, max_length: int, bad_rows: BadRows) -> dict[str, Any]:
    """What beside the files decides on the ids."""
    return {
        "columns": [pairs.source_column, pairs.target_column] if pairs.pairs else None,
        "tokenizers": [source.digest, target.digest],
        "max_length": max_length,
        "on_bad_row": bad_rows.policy,
    }


def describe_file(path: Path) -> dict[str, Any]:
    return {**glance(path), "sha256": file_digest(path)}


def glance(path: Path) -> dict[str, Any]:
    """What can be seen without reading the file."""
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {os.strerror(error.errno or 0)}") from None
    return {"path": str(path.absolute()), "size": status.st_size, "modified": status.st_mtime_ns}


def unchanged(path: Path, recorded: dict[str, Any]) -> bool:
    now = glance(path)
    if all(now[key] == recorded[key] for key in now):
        return True
    return bool(now["size"] == recorded["size"] and file_digest(path) == recorded["sha256"])


def prepare(
    directory: Path,
    pairs: Pairs,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    max_length: int,
    bad_rows: BadRows,
) -> Store:
    """The store at `directory` if it is intact and made from just this; built anew otherwise."""
    wanted = settings(pairs, source_tokenizer, target_tokenizer, max_length, bad_rows)
    try:
        store = Store.open(directory)
        if store.facts["settings"] == wanted and all(map(unchanged, pairs.files, store.facts["files"])):
            return store
    except DamagedError:
        pass  # it is a cache: make it again
    sweep(directory.absolute().parent)
    return Store.build(directory, pairs, source_tokenizer, target_tokenizer, max_length=max_length, bad_rows=bad_rows)


def random_bits(seed: int, stream: int) -> np.random.Philox:
    """Independent bits for every (seed, stream); the key is an array, as NumPy rounds large Python integers."""
    return np.random.Philox(key=np.array([seed % 2**64, stream % 2**64], np.uint64))


def held_out(rows: int, number: int, seed: int) -> npt.NDArray[np.bool_]:
    """Which rows to keep aside for validation: `number` of them; a tenth of a corpus that is not twice as large."""
    number = number if 2 * number <= rows else max(rows // 10, min(rows - 1, 1))
    order = np.argsort(random_bits(seed, -1).random_raw(rows), kind="stable")
    mask = np.zeros(rows, np.bool_)
    mask[order[: max(number, 0)]] = True
    return mask


def texts_of(store: Store, pairs: Pairs, rows: Sequence[int]) -> list[tuple[str, str]]:
    """What these rows say in the files the store was made from."""
    wanted = {int(store.lines[row]) for row in rows}
    found: dict[int, tuple[str, str]] = {}
    for block in read_pairs(pairs):
        for line, source, target in zip(block.lines, block.sources, block.targets, strict=True):
            if line in wanted:
                found[line] = (source, target)
    return [found[int(store.lines[row])] for row in rows]
