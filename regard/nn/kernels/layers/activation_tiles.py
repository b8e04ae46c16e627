"""Triton: what stands between the two products of a position-wise network, forward and backward. activation.py says what it is.

A program keeps C columns of some rows at a time, and goes on to rows further down until there are no more. SwiGLU reads two
halves of a row: what is opened, and WIDTH columns further on, its gate.
"""

import triton
import triton.language as tl

from regard.nn.kernels.layers.norm_tiles import put_tile, tile_of, vector_of
from regard.nn.kernels.random_tiles import dropout

RELU, GELU, SWIGLU = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def gauss(x):
    """Φ(x) and φ(x)"""
    return 0.5 + 0.5 * tl.erf(x * 0.7071067811865476), tl.exp(-0.5 * x * x) * 0.3989422804014327


@triton.jit
def activated(x, gate, KIND: tl.constexpr):
    if KIND == RELU:
        return tl.where(x < 0.0, 0.0, x)  # NaN stays NaN, and is seen
    elif KIND == GELU:
        below, _ = gauss(x)
        return x * below
    else:
        return x * tl.sigmoid(x) * gate


@triton.jit
def derivatives(x, gate, KIND: tl.constexpr):
    """The derivatives by x and by the gate."""
    if KIND == RELU:
        return tl.where(x > 0.0, 1.0, 0.0), x
    elif KIND == GELU:
        below, density = gauss(x)
        return below + x * density, x
    else:
        open = tl.sigmoid(x)
        return gate * open * (1.0 + x * (1.0 - open)), x * open


@triton.jit
def gate_of(X, r, stride, ok, c, gate_bias, WIDTH: tl.constexpr, KIND: tl.constexpr):
    if KIND == SWIGLU:
        return tile_of(X + WIDTH, r, stride, ok, c, WIDTH) + gate_bias
    else:
        return 0.0


@triton.jit(do_not_specialize=["call", "dropped"])
def activate(
    X, BIAS, SEED, OUT, xs, call, dropped, scale, ROWS, WIDTH: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    BIASED: tl.constexpr, DROPS: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    begin = tl.program_id(1) * C
    c = begin + tl.arange(0, C)
    bias, gate_bias = vector_of(BIAS, c, WIDTH, BIASED), vector_of(BIAS + WIDTH, c, WIDTH, BIASED and KIND == SWIGLU)
    for first in tl.range(tl.program_id(0) * R, ROWS, tl.num_programs(0) * R):
        r = first + tl.arange(0, R)
        ok = r < ROWS
        x, gate = tile_of(X, r, xs, ok, c, WIDTH) + bias, gate_of(X, r, xs, ok, c, gate_bias, WIDTH, KIND)
        out = dropout(activated(x, gate, KIND), SEED, call, r, begin, dropped, scale, WIDTH, C, R, DROPS)
        put_tile(OUT, r, WIDTH, ok, c, out, WIDTH)


@triton.jit(do_not_specialize=["call", "dropped"])
def activate_back(
    X, BIAS, SEED, G, DX, SUMS, xs, gs, ds, call, dropped, scale, ROWS, WIDTH: tl.constexpr, C: tl.constexpr, R: tl.constexpr,
    BIASED: tl.constexpr, LEARNS: tl.constexpr, DROPS: tl.constexpr, KIND: tl.constexpr,
):  # fmt: skip
    """X is what was read; with ReLU, what was written, which is 0 wherever nothing comes back: its `scale` is all it needs."""
    begin = tl.program_id(1) * C
    c = begin + tl.arange(0, C)
    bias, gate_bias = vector_of(BIAS, c, WIDTH, BIASED), vector_of(BIAS + WIDTH, c, WIDTH, BIASED and KIND == SWIGLU)
    by_bias, by_gate = tl.zeros([R, C], tl.float32), tl.zeros([R, C], tl.float32)
    for first in tl.range(tl.program_id(0) * R, ROWS, tl.num_programs(0) * R):
        r = first + tl.arange(0, R)
        ok = r < ROWS
        x, gate = tile_of(X, r, xs, ok, c, WIDTH) + bias, gate_of(X, r, xs, ok, c, gate_bias, WIDTH, KIND)
        by_x, by_other = derivatives(x, gate, KIND)
        g = tile_of(G, r, gs, ok, c, WIDTH)
        if KIND == RELU:
            g *= scale
        else:
            g = dropout(g, SEED, call, r, begin, dropped, scale, WIDTH, C, R, DROPS)
        put_tile(DX, r, ds, ok, c, g * by_x, WIDTH)
        by_bias += g * by_x
        if KIND == SWIGLU:
            put_tile(DX + WIDTH, r, ds, ok, c, g * by_other, WIDTH)
            by_gate += g * by_other
    if LEARNS:
        SUMS += tl.program_id(0) * ds + c
        tl.store(SUMS, tl.sum(by_bias, axis=0), mask=c < WIDTH)
        if KIND == SWIGLU:
            tl.store(SUMS + WIDTH, tl.sum(by_gate, axis=0), mask=c < WIDTH)
