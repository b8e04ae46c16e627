"""Rows of text on their way into a token store: encoded, counted, appended to one file a side."""

from collections.abc import Sequence
from io import BufferedWriter
from itertools import chain, compress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from regard.data.copies import extended_rows
from regard.data.guides import Guides
from regard.data.readers import Fault, Rows
from regard.data.tokenizer import Tokenizer
from regard.recipe import Pairs

WIDTHS = ("<u2", "<i4")  # the first where the vocabulary fits
SIDES = ("source", "target", "copies", "links")  # the last two where they are asked for
Integers = npt.NDArray[np.int64]


class SideWriter:
    """Appends sequences to one side's two files."""

    def __init__(self, folder: Path, side: str, largest: int) -> None:
        self.side, self.width = side, np.dtype(WIDTHS[0] if largest <= 1 << 16 else WIDTHS[1])
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

    def __init__(
        self, folder: Path, source: Tokenizer, target: Tokenizer, max_length: int, copying: bool, guides: Guides | None
    ) -> None:
        self.source, self.target, self.copying, self.guides = source, target, copying, guides
        extended = len(target) + (max_length if copying else 0)
        largest = {"source": len(source), "target": extended, "copies": extended, "links": max_length}
        present = (True, True, copying, guides is not None)
        self.sides = [SideWriter(folder, side, largest[side]) for side in compress(SIDES, present)]
        self.lines: BinaryIO = (folder / "lines").open("wb")
        self.max_length = max_length
        self.rows_in = self.rows_used = 0

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, *error: object) -> None:
        for side in self.sides:
            side.close()
        self.lines.close()

    def append(self, rows: Rows, pairs: Pairs) -> list[Fault]:
        """Write what is short enough; the faults say what is not."""
        ids = self.sequences(rows)
        lengths = [np.fromiter(map(len, side), np.int64, len(side)) for side in ids]
        long = np.maximum(*lengths[:2]) > self.max_length
        for side, tokens, counts in zip(self.sides, ids, lengths, strict=True):
            side.append(list(compress(tokens, ~long)) if long.any() else tokens, counts[~long])
        self.lines.write(np.asarray(rows.lines, "<i8")[~long].tobytes())
        self.rows_in += len(rows.lines) + len(rows.faults)
        self.rows_used += int((~long).sum())
        return [self.too_long(pairs, rows.lines[row], [int(side[row]) for side in lengths]) for row in np.flatnonzero(long)]

    def sequences(self, rows: Rows) -> list[list[list[int]]]:
        """Of each side, in the order of SIDES, the ids of each row."""
        links = [] if self.guides is None else [self.guides.links(rows)]
        sources = self.source.encode(rows.columns["source"])
        if not self.copying:
            return [sources, self.target.encode(rows.columns["target"]), *links]
        offers, targets = extended_rows(rows.columns["source"], rows.columns["target"], self.source, self.target)
        return [sources, targets, [offer.ids for offer in offers], *links]

    def too_long(self, pairs: Pairs, line: int, lengths: list[int]) -> Fault:
        side = 0 if lengths[0] > self.max_length else 1
        return Fault(
            pairs.file_of(SIDES[side]),
            line,
            f"too long: {lengths[side]} tokens, data.max_length is {self.max_length}",
        )

    def facts(self) -> dict[str, Any]:
        counts = {"rows_in": self.rows_in, "rows_used": self.rows_used, "rows_reported": self.rows_in - self.rows_used}
        widths = {f"{side.side}_width": side.width.str for side in self.sides}
        unguided = {} if self.guides is None else {"rows_unguided": self.guides.left_out}
        return {**counts, **widths, **unguided, "target_vocabulary": len(self.target)}
