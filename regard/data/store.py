"""The token store: a corpus as ids on disk, memory-mapped, checksummed, made in constant memory, rebuilt when stale."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.data.guides import Guides
from regard.data.pages import Pages, RowLengths
from regard.data.readers import BadRows, read_rows
from regard.data.sealed import file_digest, sealed, sweep, verify
from regard.data.tokenizer import Tokenizer
from regard.data.writer import SIDES, WIDTHS, Writer
from regard.errors import DamagedError, DataError
from regard.recipe import Pairs

FORMAT = 2
Integers = npt.NDArray[np.int64]


class Sequences:
    """One side: all ids in a row, and where each sequence begins."""

    def __init__(self, tokens: npt.NDArray[Any], offsets: Integers) -> None:
        self.tokens = tokens
        self.offsets = offsets
        self.lengths, self.pages = RowLengths(offsets), Pages(tokens)

    @classmethod
    def open(cls, folder: Path, side: str, width: object) -> "Sequences":
        if width not in WIDTHS:
            raise DamagedError(f"{folder / 'manifest.json'}: tokens of width {width!r}")
        return cls(mapped(folder / f"{side}.tokens", np.dtype(str(width))), mapped(folder / f"{side}.offsets", np.dtype("<i8")))

    def __getitem__(self, row: int) -> npt.NDArray[Any]:
        return self.tokens[self.offsets[row] : self.offsets[row + 1]]

    def gather(self, rows: Integers) -> tuple[npt.NDArray[Any], Integers]:
        """The ids of these rows one after the other, and how many each has."""
        begins, lengths = self.lengths.spans(rows)
        return self.pages.stretches(begins, lengths), lengths


def mapped(path: Path, width: np.dtype[Any]) -> npt.NDArray[Any]:
    if path.stat().st_size == 0:  # cannot be mapped
        return np.empty(0, width)
    return np.memmap(path, width, mode="r")


class Store:
    """Pairs of id sequences; a row keeps its place for as long as the store lives."""

    def __init__(
        self,
        sources: Sequences,
        targets: Sequences,
        lines: Integers,
        facts: dict[str, Any],
        copies: Sequences | None = None,
        links: Sequences | None = None,
    ) -> None:
        self.sources = sources
        self.targets = targets  # over the extended vocabulary of each row where there are copies
        self.lines = lines  # where each row stands in its file, from 1
        self.facts = facts  # rows_in = rows_used + rows_reported, and what the store was made from
        self.copies = copies  # each source token as the target would write it
        self.links = links  # target, source, target, source ...: the tokens that are linked to each other

    @classmethod
    def open(cls, directory: Path) -> "Store":
        """An intact store; DamagedError otherwise."""
        facts = verify(directory)
        if facts.get("store") != FORMAT:
            raise DamagedError(f"{directory / 'manifest.json'}: not a token store of format {FORMAT}")

        def opened(side: str) -> Sequences:
            return Sequences.open(directory, side, facts.get(f"{side}_width"))

        extra = (opened(side) if f"{side}_width" in facts else None for side in SIDES[2:])
        return cls(opened("source"), opened("target"), mapped(directory / "lines", np.dtype("<i8")), facts, *extra)

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
        copying: bool = False,
        links: bool = False,
    ) -> "Store":
        """`copying` adds what each source offers to be copied, `links` the tokens that `pairs.alignment` links."""
        guides = Guides(alignment_of(pairs), source_tokenizer, target_tokenizer, max_length) if links else None
        facts = {
            "store": FORMAT,
            "files": [describe_file(path) for path in files_of(pairs, links)],
            "settings": settings(pairs, source_tokenizer, target_tokenizer, max_length, bad_rows, copying, links),
        }
        with sealed(directory, facts) as folder:
            with Writer(folder, source_tokenizer, target_tokenizer, max_length, copying, guides) as writer:
                for rows in read_rows(pairs):
                    bad_rows.add(rows.faults)
                    bad_rows.skip(writer.append(rows, pairs))
            if guides is not None:
                guides.finish(pairs.files)
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
    def source_lengths(self) -> RowLengths:
        return self.sources.lengths

    @property
    def target_lengths(self) -> RowLengths:
        return self.targets.lengths


def alignment_of(pairs: Pairs) -> Path:
    if pairs.alignment is None:
        raise DataError("guided attention needs given alignments: name their file in data.train.alignment")
    return pairs.alignment


def files_of(pairs: Pairs, links: bool) -> tuple[Path, ...]:
    """What is read; alignments only where they are asked for."""
    return (*pairs.files, alignment_of(pairs)) if links else pairs.files


def settings(
    pairs: Pairs, source: Tokenizer, target: Tokenizer, max_length: int, bad_rows: BadRows, copying: bool, links: bool
) -> dict[str, Any]:
    """What beside the files decides on the ids."""
    return {
        "columns": list(pairs.named.values()) if pairs.pairs else None,
        "tokenizers": [source.digest, target.digest],
        "max_length": max_length,
        "on_bad_row": bad_rows.policy,
        "copying": copying,
        "links": links,
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
    copying: bool = False,
    links: bool = False,
) -> Store:
    """The store at `directory` if it is intact and made from just this; built anew otherwise."""
    wanted = settings(pairs, source_tokenizer, target_tokenizer, max_length, bad_rows, copying, links)
    try:
        store = Store.open(directory)
        if store.facts["settings"] == wanted and all(map(unchanged, files_of(pairs, links), store.facts["files"])):
            return store
    except DamagedError:
        pass  # it is a cache: make it again
    sweep(directory.absolute().parent)
    return Store.build(
        directory, pairs, source_tokenizer, target_tokenizer, max_length=max_length, bad_rows=bad_rows, copying=copying,
        links=links,
    )  # fmt: skip


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
    for block in read_rows(pairs):
        for line, source, target in zip(block.lines, block.columns["source"], block.columns["target"], strict=True):
            if line in wanted:
                found[line] = (source, target)
    return [found[int(store.lines[row])] for row in rows]
