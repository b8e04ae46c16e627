"""Triton: rows of states are added to their residual and normalised, forward and backward. norm.py says what is computed.

A program keeps some rows at a time in registers, and goes on to rows further down until there are no more; what it adds up for
the gradients of weights is its own line of SUMS.
"""

import triton
import triton.language as tl

from regard.nn.kernels.random_tiles import dropout


@triton.jit
def tile_of(X, r, stride, ok, c, WIDTH: tl.constexpr):
    """Columns c of rows r; 0 where there are none."""
    inside = ok[:, None] & (c < WIDTH)[None, :]
    return tl.load(X + r.to(tl.int64)[:, None] * stride + c[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def put_tile(X, r, stride, ok, c, tile, WIDTH: tl.constexpr):
    inside = ok[:, None] & (c < WIDTH)[None, :]
    tl.store(X + r.to(tl.int64)[:, None] * stride + c[None, :], tile.to(X.dtype.element_ty), mask=inside)


@triton.jit
def vector_of(X, c, WIDTH: tl.constexpr, THERE: tl.constexpr):
    """One vector for all rows; 0 where it is not THERE."""
    if THERE:
        return tl.load(X + c, mask=c < WIDTH, other=0.0).to(tl.float32)[None, :]
    else:
        return tl.zeros([1, c.shape[0]], tl.float32)


@triton.jit
def normalised(total, c, eps, SIZE: tl.constexpr, CENTRED: tl.constexpr):
    """(x - mean) / √(variance + ε), or x / √(mean of x² + ε); and what they were divided by, as a factor."""
    away = total
    if CENTRED:
        away = tl.where((c < SIZE)[None, :], total - tl.sum(total, axis=1)[:, None] / SIZE, 0.0)
    factor = tl.rsqrt(tl.sum(away * away, axis=1) / SIZE + eps)[:, None]
    return away * factor, factor


@triton.jit(do_not_specialize=["call", "dropped"])
def add_norm(
    X, RESIDUAL, BIAS, WEIGHT, OFFSET, SEED, TOTAL, NORMED, xs, rs, call, dropped, scale, eps, ROWS, SIZE: tl.constexpr,
    C: tl.constexpr, R: tl.constexpr, ADDS: tl.constexpr, BIASED: tl.constexpr, SHIFTS: tl.constexpr, DROPS: tl.constexpr,
    CENTRED: tl.constexpr,
):  # fmt: skip
    c = tl.arange(0, C)
    bias, weight = vector_of(BIAS, c, SIZE, BIASED), vector_of(WEIGHT, c, SIZE, True)
    offset = vector_of(OFFSET, c, SIZE, SHIFTS)
    for first in tl.range(tl.program_id(0) * R, ROWS, tl.num_programs(0) * R):
        r = first + tl.arange(0, R)
        ok = r < ROWS
        total = dropout(tile_of(X, r, xs, ok, c, SIZE) + bias, SEED, call, r, 0, dropped, scale, SIZE, C, R, DROPS)
        if ADDS:
            total += tile_of(RESIDUAL, r, rs, ok, c, SIZE)
        put_tile(TOTAL, r, SIZE, ok, c, total, SIZE)
        total = total.to(TOTAL.dtype.element_ty).to(tl.float32)  # as backward will read it
        x, _ = normalised(total, c, eps, SIZE, CENTRED)
        put_tile(NORMED, r, SIZE, ok, c, x * weight + offset, SIZE)


@triton.jit(do_not_specialize=["call", "dropped"])
def add_norm_back(
    TOTAL, WEIGHT, SEED, DNORMED, DAGAIN, DTOTAL, DX, DRESIDUAL, SUMS, ns, gs, ts, call, dropped, scale, eps, ROWS,
    SIZE: tl.constexpr, C: tl.constexpr, R: tl.constexpr, NORMS: tl.constexpr, AGAIN: tl.constexpr, PASSES: tl.constexpr,
    SPLITS: tl.constexpr, BIASED: tl.constexpr, DROPS: tl.constexpr, CENTRED: tl.constexpr,
):  # fmt: skip
    """With x the normalised row, f its factor and g = dnormed · weight: dtotal += f (g - mean of g - x · mean of (g x)), the
    first mean only where rows were centred. NORMS, AGAIN, PASSES: which gradients came; SPLITS: the residual's is another."""
    c = tl.arange(0, C)
    weight = vector_of(WEIGHT, c, SIZE, True)
    by_weight, by_offset, by_bias = tl.zeros([R, C], tl.float32), tl.zeros([R, C], tl.float32), tl.zeros([R, C], tl.float32)
    for first in tl.range(tl.program_id(0) * R, ROWS, tl.num_programs(0) * R, num_stages=2):
        r = first + tl.arange(0, R)
        ok = r < ROWS
        d = tl.zeros([R, C], tl.float32)
        if PASSES:
            d = tile_of(DTOTAL, r, ts, ok, c, SIZE)
        if NORMS:
            x, factor = normalised(tile_of(TOTAL, r, SIZE, ok, c, SIZE), c, eps, SIZE, CENTRED)
            grad = tile_of(DNORMED, r, ns, ok, c, SIZE)
            if AGAIN:
                grad += tile_of(DAGAIN, r, gs, ok, c, SIZE)
            by_weight += grad * x
            by_offset += grad
            g = grad * weight
            inner = g - x * (tl.sum(g * x, axis=1) / SIZE)[:, None]
            if CENTRED:
                inner -= (tl.sum(g, axis=1) / SIZE)[:, None]
            d += factor * inner
        if SPLITS:
            put_tile(DRESIDUAL, r, SIZE, ok, c, d, SIZE)
        d = dropout(d, SEED, call, r, 0, dropped, scale, SIZE, C, R, DROPS)
        put_tile(DX, r, SIZE, ok, c, d, SIZE)
        if BIASED:
            by_bias += tl.where(ok[:, None], d, 0.0)
    SUMS += tl.program_id(0) * (3 * SIZE) + c
    if NORMS:
        tl.store(SUMS, tl.sum(by_weight, axis=0), mask=c < SIZE)
        tl.store(SUMS + SIZE, tl.sum(by_offset, axis=0), mask=c < SIZE)
    if BIASED:
        tl.store(SUMS + 2 * SIZE, tl.sum(by_bias, axis=0), mask=c < SIZE)


@triton.jit
def add_lines(SUMS, OUT, COUNT, WIDTH: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """Some columns of all lines."""
    c = tl.program_id(0) * C + tl.arange(0, C)
    total = tl.zeros([R, C], tl.float32)
    for first in tl.range(0, COUNT, R):
        r = first + tl.arange(0, R)
        total += tile_of(SUMS, r, WIDTH, r < COUNT, c, WIDTH)
    tl.store(OUT + c, tl.sum(total, axis=0), mask=c < WIDTH)
