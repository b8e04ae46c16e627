"""How additive attention is cut into tiles and chunks."""

from collections.abc import Iterator
from typing import NamedTuple

WORKSPACE = 64 * 2**20  # bytes of scores at a time
KEYS = 64  # of a tile


class Chunk(NamedTuple):
    """Sequences (one for each head) and rows of queries whose scores are computed at a time."""

    origin: int
    sequences: int
    begin: int
    rows: int

    @property
    def place(self) -> tuple[int, int, int]:
        return self.origin, self.begin, self.rows


class Sizes(NamedTuple):
    """How much there is, and how much of it with the filling that makes whole tiles."""

    batch: int
    heads: int
    target: int
    source: int
    size: int
    value: int

    @property
    def sequences(self) -> int:
        return self.batch * self.heads

    @property
    def tile(self) -> int:
        """Queries of a tile: a decoding step has one."""
        return 64 if self.target > 16 else 16

    @property
    def units(self) -> int:
        """Units of a tile of gradients."""
        return min(32, 1 << max(3, (self.size - 1).bit_length()))

    @property
    def queries(self) -> int:
        return filled(self.target, self.tile)

    @property
    def keys(self) -> int:
        return filled(self.source, KEYS)

    @property
    def width(self) -> int:
        return filled(self.size, self.units)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.heads, self.target, self.source, self.queries, self.keys

    @property
    def room(self) -> tuple[int, int]:
        """Sequences and rows of a chunk: all rows of as many sequences as the workspace holds, or a part of the rows of one."""
        rows = WORKSPACE // (4 * self.keys)
        return max(1, min(self.sequences, rows // self.queries)), min(self.queries, max(1, rows // self.tile) * self.tile)

    @property
    def in_parts(self) -> bool:
        """Whether several chunks add to the gradient of one key."""
        return self.room[1] < self.queries

    def chunks(self) -> Iterator[Chunk]:
        sequences, rows = self.room
        for origin in range(0, self.sequences, sequences):
            for begin in range(0, self.queries, rows):
                yield Chunk(origin, min(sequences, self.sequences - origin), begin, min(rows, self.queries - begin))


def filled(number: int, tile: int) -> int:
    return max(1, -(-number // tile)) * tile
