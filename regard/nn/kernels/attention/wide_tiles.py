"""Triton: the backward pass of wide heads, whose gradients do not fit into registers beside one another.

The weights and the gradients of the scores of some query rows go to a workspace; each gradient is then one product.
"""

import triton
import triton.language as tl

from regard.nn.kernels.attention.flash_backward import LOG2E, log_sum_of, middle_of, place_of, queries_of, score_gradients
from regard.nn.kernels.attention.flash_tiles import counted, held, products, put_rows, rows_of, span, there, window_of


@triton.jit
def put_tile(X, at, r, c, ok, tile, S):
    tl.store(X + at + r[:, None] * S + c[None, :], tile.to(X.dtype.element_ty), mask=ok)


@triton.jit
def wide_score_gradients(
    Q, K, V, MIXED, GRADIENT, LOG_SUM, PLACE, BY_SUM, WEIGHTS, DS, DCENTRE, VISIBLE, FIRST, LAST, CENTRE, scale, factor, steep,
    HEADS, SHARES, T, S, begin, rows, SIZE: tl.constexpr, VALUE: tl.constexpr, C: tl.constexpr, CV: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, PLAIN: tl.constexpr, HIDES: tl.constexpr, WINDOW: tl.constexpr, GAUSS: tl.constexpr,
    SOFT: tl.constexpr, PICK: tl.constexpr, GIVES: tl.constexpr, SUMS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Rows `begin` to `begin + rows` of the weights and of the gradients of q · k; also the gradients of the centres."""
    blocks, block = tl.cdiv(rows, BM), tl.program_id(0) % tl.cdiv(rows, BM)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    batch = row // HEADS
    local = block * BM + tl.arange(0, BM)
    i = begin + local
    ok, at = local < rows, row * T + i
    first, last = window_of(FIRST, LAST, (batch * SHARES + row % HEADS % SHARES) * T, i, ok, S, WINDOW)
    low, high = span(first, last, S, BN, WINDOW)
    log_sum = log_sum_of(LOG_SUM, at, ok)
    middle = middle_of(MIXED, GRADIENT, BY_SUM, row, i, ok, T, log_sum, VALUE, SOFT, SUMS)
    centre = 0.0 * i
    q_at, c_at, w_at = row * T * SIZE, row * T * VALUE, row * rows * S
    q, gradient = held(Q, q_at, i, ok, SIZE, C), 0.0
    if SOFT:
        gradient = held(GRADIENT, c_at, i, ok, VALUE, CV)
    if GAUSS:
        centre = tl.load(CENTRE + at, mask=ok, other=0.0).to(tl.float32)
    dcentre = tl.zeros([BM], tl.float32)
    for start in range(low, high, BN):
        j = start + tl.arange(0, BN)
        seen = there(VISIBLE, batch, j, S, HIDES)
        s = products(q, Q, q_at, i, ok, K, row * S * SIZE, j, seen, SIZE, C, PRECISION) * factor
        s = counted(s, j[None, :], seen[None, :], first[:, None], last[:, None], PLAIN, WINDOW)
        direct = s
        if SOFT:
            direct = products(gradient, GRADIENT, c_at, i, ok, V, row * S * VALUE, j, seen, VALUE, CV, PRECISION)
        away = j[None, :] - centre[:, None]
        weights, scores = score_gradients(s, direct, log_sum[:, None], middle[:, None], away, steep, GAUSS, SOFT)
        if GAUSS:
            dcentre += tl.sum(weights * direct * away, axis=1)
        if PICK:
            weights = tl.where(j[None, :] == place_of(PLACE, at, ok)[:, None], 1.0, 0.0)
        inside = ok[:, None] & (j < S)[None, :]
        if GIVES:
            put_tile(WEIGHTS, w_at, local, j, inside, weights, S)
        put_tile(DS, w_at, local, j, inside, scores * scale, S)
    if GAUSS:
        tl.store(DCENTRE + at, dcentre * (2.0 * steep / LOG2E), mask=ok)


@triton.jit
def by_query(
    DS, K, DQ, VISIBLE, FIRST, LAST, HEADS, SHARES, T, S, begin, rows, SIZE: tl.constexpr, BC: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, HIDES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dQ = dS K of these rows, BC columns."""
    slices, blocks = tl.cdiv(SIZE, BC), tl.cdiv(rows, BM)
    number = tl.program_id(0) // slices
    row, block = (number // blocks).to(tl.int64), number % blocks
    local, c = block * BM + tl.arange(0, BM), tl.program_id(0) % slices * BC + tl.arange(0, BC)
    i, ok = begin + local, local < rows
    first, last = window_of(FIRST, LAST, (row // HEADS * SHARES + row % HEADS % SHARES) * T, i, ok, S, True)
    low, high = span(first, last, S, BN, True)
    total = tl.zeros([BM, BC], tl.float32)
    for start in tl.range(low, high, BN):
        j = start + tl.arange(0, BN)
        inside = ok[:, None] & (j < S)[None, :]
        scores = tl.load(DS + row * rows * S + local[:, None] * S + j[None, :], mask=inside, other=0.0)
        keys = rows_of(K, row * S * SIZE, j, there(VISIBLE, row // HEADS, j, S, HIDES), c, SIZE)
        total = tl.dot(scores, keys, total, input_precision=PRECISION)
    put_rows(DQ, row * rows * SIZE, local, ok, c, total, SIZE)


@triton.jit
def by_key(
    TILES, X, OUT, LOW, HIGH, T, S, begin, rows, WIDTH: tl.constexpr, BC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    FM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Aᵀ X over these query rows, BC columns: dK from dS and the queries, dV from the weights and dc."""
    slices, blocks = tl.cdiv(WIDTH, BC), tl.cdiv(S, BN)
    number = tl.program_id(0) // slices
    row, block = (number // blocks).to(tl.int64), number % blocks
    j, c = block * BN + tl.arange(0, BN), tl.program_id(0) % slices * BC + tl.arange(0, BC)
    forward = tl.cdiv(T, FM)
    start, end = queries_of(LOW, HIGH, row * forward, block * BN, forward, T, FM, BM, BN, True)
    start, end = tl.maximum(start - begin, 0) // BM * BM, tl.minimum(end - begin, rows)
    total = tl.zeros([BN, BC], tl.float32)
    for m in tl.range(start, end, BM):
        i = m + tl.arange(0, BM)
        inside = (i < rows)[:, None] & (j < S)[None, :]
        tile = tl.load(TILES + row * rows * S + i[:, None] * S + j[None, :], mask=inside, other=0.0)
        x = rows_of(X, row * T * WIDTH, begin + i, i < rows, c, WIDTH)
        total = tl.dot(tl.trans(tile), x, total, input_precision=PRECISION)
    put_rows(OUT, row * S * WIDTH, j, j < S, c, total, WIDTH)
