"""Triton: words enter a stack, and the gradient of their table. words.py says what is computed."""

import triton
import triton.language as tl

from regard.nn.kernels.layers.norm_tiles import put_tile, tile_of
from regard.nn.kernels.random_tiles import dropout


@triton.jit(do_not_specialize=["call", "dropped"])
def enter(
    X, PLACES, SEED, OUT, factor, call, dropped, scale, ROWS, TIME, SIZE: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    ADDS: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """dropout(factor · x + p), where row r has place r mod TIME."""
    c, r = tl.arange(0, C), tl.program_id(0) * R + tl.arange(0, R)
    ok = r < ROWS
    x = tile_of(X, r, SIZE, ok, c, SIZE) * factor
    if ADDS:
        x += tile_of(PLACES, r % TIME, SIZE, ok, c, SIZE)
    put_tile(OUT, r, SIZE, ok, c, dropout(x, SEED, call, r, 0, dropped, scale, SIZE, C, R, DROPS), SIZE)


@triton.jit
def add_runs(
    G, WORDS, ORDER, INTO, EDGES, COUNT, SIZE: tl.constexpr, C: tl.constexpr, B: tl.constexpr, KIND: tl.constexpr
):  # fmt: skip
    """Sums of equal words among B sorted ones, by a product with which are equal. A run that begins and ends here is whole;
    of one that came from before, the sum goes to EDGES[block, 0], of one that begins here and goes on, to EDGES[block, 1]."""
    block = tl.program_id(0)
    i, c = tl.arange(0, B), tl.program_id(1) * C + tl.arange(0, C)
    p = block * B + i
    ok, columns = p < COUNT, (c < SIZE)[None, :]
    word, at = tl.load(WORDS + p, mask=ok, other=-1), tl.load(ORDER + p, mask=ok, other=0)
    rows = tl.load(G + at[:, None] * SIZE + c[None, :], mask=ok[:, None] & columns, other=0.0).to(KIND)
    same = (word[:, None] == word[None, :]).to(KIND)
    sums = tl.dot(same, rows, input_precision="ieee")
    begins = ok & (word != tl.load(WORDS + p - 1, mask=ok & (p > 0), other=-2))
    goes_on = word == tl.load(WORDS + (block + 1) * B, mask=(block + 1) * B < COUNT, other=-2)
    row = word.to(tl.int64)[:, None] * SIZE + c[None, :]
    tl.store(INTO + row, sums.to(INTO.dtype.element_ty), mask=(begins & ~goes_on)[:, None] & columns)
    edge = EDGES + block * 2 * SIZE + tl.zeros([B, 1], tl.int32) + c[None, :]
    tl.store(edge, sums, mask=(ok & (i == 0) & ~begins)[:, None] & columns)
    tl.store(edge + SIZE, sums, mask=(begins & goes_on)[:, None] & columns)


@triton.jit
def join_runs(WORDS, INTO, EDGES, COUNT, SIZE: tl.constexpr, C: tl.constexpr, B: tl.constexpr, AT_ONCE: tl.constexpr):
    """The block in which a run begins that goes on adds up what the next ones have of it."""
    block = tl.program_id(0)
    end, c = (block + 1) * B, tl.program_id(1) * C + tl.arange(0, C)
    if end < COUNT:
        word, columns = tl.load(WORDS + end - 1), c < SIZE
        begins_here = tl.load(WORDS + block * B - 1, mask=block > 0, other=-2) != word
        if (tl.load(WORDS + end) == word) & begins_here:
            total = tl.load(EDGES + (block * 2 + 1) * SIZE + c, mask=columns, other=0.0)
            next, more = block + 1, True
            while more:
                n = next + tl.arange(0, AT_ONCE)
                ok = tl.load(WORDS + n * B, mask=n * B < COUNT, other=-2) == word
                edges = tl.load(EDGES + n[:, None] * 2 * SIZE + c[None, :], mask=ok[:, None] & columns[None, :], other=0.0)
                total += tl.sum(edges, axis=0)
                next, more = next + AT_ONCE, tl.sum(ok.to(tl.int32), axis=0) == AT_ONCE
            tl.store(INTO + word.to(tl.int64) * SIZE + c, total.to(INTO.dtype.element_ty), mask=columns)
