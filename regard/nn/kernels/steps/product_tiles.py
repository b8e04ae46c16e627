"""Triton: products of a few rows, with what stands before and behind them. product.py says what is computed.

So few rows use a fraction of what a GPU can compute, and its time is that of launches and of reading weights once: a program
reads its own weights, and all rows whole.
"""

import triton
import triton.language as tl

from regard.nn.kernels.layers.norm_tiles import normalised, vector_of
from regard.nn.kernels.steps.attend_tiles import come_early


@triton.jit
def read_rows(X, GAIN, OFFSET, r, rows, c, eps, SIZE: tl.constexpr, NORM: tl.constexpr, SHIFTS: tl.constexpr):
    """Rows of X, normalised if there is a NORM (1: by mean square, 2: by mean and variance)."""
    inside = (r < rows)[:, None] & (c < SIZE)[None, :]
    x = tl.load(X + r.to(tl.int64)[:, None] * SIZE + c[None, :], mask=inside, other=0.0).to(tl.float32)
    if NORM > 0:
        x, _ = normalised(x, c, eps, SIZE, NORM == 2)
        x = x * vector_of(GAIN, c, SIZE, True) + vector_of(OFFSET, c, SIZE, SHIFTS)
    return x


@triton.jit
def moments(X, r, rows, c, eps, SIZE: tl.constexpr, NORM: tl.constexpr):
    """What is taken from each row, and by what it is multiplied then."""
    inside = (r < rows)[:, None] & (c < SIZE)[None, :]
    x = tl.load(X + r.to(tl.int64)[:, None] * SIZE + c[None, :], mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1) / SIZE
    if NORM == 1:
        mean = mean * 0.0
    away = tl.where((c < SIZE)[None, :], x - mean[:, None], 0.0)
    return mean, tl.rsqrt(tl.sum(away * away, axis=1) / SIZE + eps)


@triton.jit
def product(
    X, GAIN, OFFSET, WEIGHT, BIAS, PLUS, PGAIN, POFFSET, OUT, rows, eps, other_eps, SIZE: tl.constexpr, WIDE: tl.constexpr,
    C: tl.constexpr, K: tl.constexpr, R: tl.constexpr, N: tl.constexpr, NORM: tl.constexpr, SHIFTS: tl.constexpr,
    BIASED: tl.constexpr, KIND: tl.constexpr, ADDS: tl.constexpr, PNORM: tl.constexpr, PSHIFTS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """R rows and N of the WIDE columns of φ(norm(x) Wᵀ + b) + norm'(plus); one row is multiplied without tensor cores. K: of
    SIZE, so many at a time, or all where rows are normalised; C: a power of two not below WIDE, for norm' reads rows whole."""
    n, r, k = tl.program_id(0) * N + tl.arange(0, N), tl.program_id(1) * R + tl.arange(0, R), tl.arange(0, K)
    columns = n < WIDE
    sums = tl.zeros([R, N], tl.float32)
    if R > 1:
        come_early(EARLY)  # a loop that feeds tensor cores reads ahead, and would read rows that are not there yet
    for first in tl.range(0, SIZE, K):
        c = first + k
        if R == 1:
            weights = tl.load(WEIGHT + n[:, None] * SIZE + c[None, :], mask=columns[:, None] & (c < SIZE)[None, :], other=0.0)
            come_early(EARLY)
            x = read_rows(X, GAIN, OFFSET, r, rows, c, eps, SIZE, NORM, SHIFTS)
            sums += tl.sum(weights.to(tl.float32) * x, axis=1)[None, :]
        else:
            weights = tl.load(WEIGHT + n[None, :] * SIZE + c[:, None], mask=columns[None, :] & (c < SIZE)[:, None], other=0.0)
            x = read_rows(X, GAIN, OFFSET, r, rows, c, eps, SIZE, NORM, SHIFTS).to(weights.dtype)
            sums += tl.dot(x, weights, input_precision="ieee")
    if BIASED:
        sums += tl.load(BIAS + n, mask=columns, other=0.0).to(tl.float32)[None, :]
    if KIND == 1:
        sums = tl.where(sums < 0.0, 0.0, sums)  # what is no number stays so
    inside = (r < rows)[:, None] & columns[None, :]
    at = r.to(tl.int64)[:, None] * WIDE + n[None, :]
    if ADDS:
        plus = tl.load(PLUS + at, mask=inside, other=0.0).to(tl.float32)
        if PNORM > 0:
            mean, factor = moments(PLUS, r, rows, tl.arange(0, C), other_eps, WIDE, PNORM)
            plus = (
                (plus - mean[:, None]) * factor[:, None] * tl.load(PGAIN + n, mask=columns, other=0.0).to(tl.float32)[None, :]
            )
            if PSHIFTS:
                plus += tl.load(POFFSET + n, mask=columns, other=0.0).to(tl.float32)[None, :]
        sums += plus
    tl.store(OUT + at, sums.to(OUT.dtype.element_ty), mask=inside)
