"""How flash attention is cut into tiles: found by timing on an H200, held to what fits into its registers and shared memory."""

from typing import NamedTuple

from regard.nn.kernels.machine import interpreted, power_of_two


class Tile(NamedTuple):
    """How many queries and keys meet at a time, and by how many warps and how far ahead they are read."""

    queries: int
    keys: int
    warps: int
    stages: int

    def options(self) -> dict[str, int]:
        return {"BM": self.queries, "BN": self.keys, "num_warps": self.warps, "num_stages": self.stages}


class FlashPlan(NamedTuple):
    """The tiles of one shape. `chunk` columns of queries and keys are read at a time, `slice_` of values kept by a program."""

    chunk: int
    slice_: int
    forward: Tile
    query_backward: Tile
    keys_backward: Tile
    wide: bool


WIDEST = 1024
NARROW = {2: 256, 4: 64}  # widest head whose gradients stay in registers, by the bytes of an element
KEPT = {2: 256, 4: 128}  # columns of the values that a program of a wide head keeps
STRIP = 64  # columns of a wide head that are read at a time
COLUMNS = 128  # of the gradients that a program of a product works out
WORKSPACE = 1 << 28  # bytes that backward of wide heads may take at a time, whatever the lengths

# by the wider of keys and values, as a power of two: forward, backward to the queries, backward to the keys
HALF = {
    64: (Tile(64, 64, 4, 3), Tile(64, 64, 4, 3), Tile(64, 64, 4, 3)),
    128: (Tile(128, 64, 8, 3), Tile(128, 64, 8, 2), Tile(64, 64, 8, 2)),
    256: (Tile(128, 64, 8, 2), Tile(64, 64, 8, 2), Tile(32, 64, 8, 2)),
}
SINGLE = {64: (Tile(64, 64, 4, 2), Tile(64, 32, 4, 2), Tile(32, 64, 4, 2))}
WIDE = {
    2: (Tile(128, 128, 8, 4), Tile(128, 128, 8, 4), Tile(64, 128, 8, 3)),
    4: (Tile(64, 32, 8, 2), Tile(64, 64, 8, 2), Tile(32, 64, 8, 2)),
}
SHORT = {2: Tile(128, 64, 8, 2), 4: Tile(64, 32, 8, 2)}  # forward where keys are one strip: whole values are read ahead
SMALL = (Tile(16, 16, 4, 1),) * 3  # where programs are interpreted, several tiles should meet at small sizes


def plan_for(size: int, value: int, itemsize: int) -> FlashPlan:
    chunk, slice_ = power_of_two(size), power_of_two(value)
    wide = max(chunk, slice_) > NARROW[itemsize]
    if wide:
        tiles = WIDE[itemsize] if chunk > STRIP else (SHORT[itemsize], *WIDE[itemsize][1:])
        chunk, slice_ = min(chunk, STRIP), min(slice_, KEPT[itemsize])
    else:
        tiles = (HALF if itemsize == 2 else SINGLE)[max(64, chunk, slice_)]
    return FlashPlan(chunk, slice_, *(SMALL if interpreted() else tiles), wide)
