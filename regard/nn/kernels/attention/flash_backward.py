"""Triton: backward of flash_tiles.py. Weights are computed again, by queries in one kernel, by keys in another: no races.

With p = 2^s / Σ 2^s and w = p times the Gaussian, the gradient of a score is w (dc · v) - p · middle, where the middle of a
query is Σ_j w_ij (dc_i · v_j) = dc_i · c_i, less the gradient of its log-sum-exp.
"""

import triton
import triton.language as tl

from regard.nn.kernels.attention.flash_tiles import counted, put_rows, row_products, rows_of, span, there, window_of

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def log_sum_of(LOG_SUM, at, ok):
    """ln Σ e^s in powers of two; +∞ for an empty sum, so that all its weights are 0."""
    log_sum = tl.load(LOG_SUM + at, mask=ok, other=float("-inf"))
    return tl.where(log_sum > float("-inf"), log_sum * LOG2E, float("inf"))


@triton.jit
def place_of(PLACE, at, ok):
    """The key that hard attention picked; -1 for none."""
    return tl.load(PLACE + at, mask=ok, other=-1).to(tl.int32)


@triton.jit
def middle_of(MIXED, GRADIENT, BY_SUM, row, i, ok, T, log_sum, VALUE: tl.constexpr, SOFT: tl.constexpr, SUMS: tl.constexpr):
    """dc_i · c_i, less the gradient of the log-sum-exp; 0 if the sum was empty."""
    middle = tl.zeros_like(log_sum)
    if SUMS:
        middle -= tl.load(BY_SUM + row * T + i, mask=ok, other=0.0)
    if SOFT:
        at = row * T * VALUE
        middle += row_products(MIXED, at, i, ok, GRADIENT, at, i, ok, VALUE, 64)
    return tl.where(log_sum < float("inf"), middle, 0.0)


@triton.jit
def score_gradients(s, direct, log_sum, middle, away, steep, GAUSS: tl.constexpr, SOFT: tl.constexpr):
    """The weights and the gradients of the scores of a tile, whichever way it lies; `direct` is dc · v."""
    weights = tl.exp2(s - log_sum)
    gradients = -middle * weights
    if GAUSS:
        weights = weights * tl.exp2(-steep * away * away)
    if SOFT:
        gradients += weights * direct
    return weights, gradients


@triton.jit
def query_backward(
    Q, K, V, MIXED, GRADIENT, LOG_SUM, BY_SUM, MIDDLE, DQ, DCENTRE, VISIBLE, FIRST, LAST, CENTRE, scale, factor, steep, HEADS,
    SHARES, T, S, SIZE: tl.constexpr, VALUE: tl.constexpr, C: tl.constexpr, CV: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, PLAIN: tl.constexpr, HIDES: tl.constexpr, WINDOW: tl.constexpr, GAUSS: tl.constexpr, SOFT: tl.constexpr,
    SUMS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of queries and of their centres; leaves their middles for keys_backward."""
    blocks, block = tl.cdiv(T, BM), tl.program_id(0) % tl.cdiv(T, BM)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    batch = row // HEADS
    i, c, v = block * BM + tl.arange(0, BM), tl.arange(0, C), tl.arange(0, CV)
    ok, at = i < T, row * T + i
    first, last = window_of(FIRST, LAST, (batch * SHARES + row % HEADS % SHARES) * T, i, ok, S, WINDOW)
    low, high = span(first, last, S, BN, WINDOW)
    q = rows_of(Q, row * T * SIZE, i, ok, c, SIZE)
    log_sum = log_sum_of(LOG_SUM, at, ok)
    middle = middle_of(MIXED, GRADIENT, BY_SUM, row, i, ok, T, log_sum, VALUE, SOFT, SUMS)
    tl.store(MIDDLE + at, middle, mask=ok)
    centre, gradient = 0.0 * i, q
    if SOFT:
        gradient = rows_of(GRADIENT, row * T * VALUE, i, ok, v, VALUE)
    if GAUSS:
        centre = tl.load(CENTRE + at, mask=ok, other=0.0).to(tl.float32)
    dq, dcentre = tl.zeros([BM, C], tl.float32), tl.zeros([BM], tl.float32)
    for start in tl.range(low, high, BN):
        j = start + tl.arange(0, BN)
        seen = there(VISIBLE, batch, j, S, HIDES)
        keys = rows_of(K, row * S * SIZE, j, seen, c, SIZE)
        s = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * factor
        s = counted(s, j[None, :], seen[None, :], first[:, None], last[:, None], PLAIN, WINDOW)
        direct = s
        if SOFT:
            values = rows_of(V, row * S * VALUE, j, seen, v, VALUE)
            direct = tl.dot(gradient, tl.trans(values), input_precision=PRECISION)
        away = j[None, :] - centre[:, None]
        weights, scores = score_gradients(s, direct, log_sum[:, None], middle[:, None], away, steep, GAUSS, SOFT)
        if GAUSS:
            dcentre += tl.sum(weights * direct * away, axis=1)
        dq = tl.dot(scores.to(keys.dtype), keys, dq, input_precision=PRECISION)
    put_rows(DQ, row * T * SIZE, i, ok, c, dq * scale, SIZE)
    if GAUSS:
        tl.store(DCENTRE + at, dcentre * (2.0 * steep / LOG2E), mask=ok)


@triton.jit
def queries_of(LOW, HIGH, at, n, blocks, T, FM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, WINDOW: tl.constexpr):
    """Where a loop over the queries that may see keys [n, n + BN) begins and ends; FM queries were one block forward."""
    if WINDOW:
        begin, end = T, 0
        for start in range(0, blocks, 64):
            m = start + tl.arange(0, 64)
            low, high = (
                tl.load(LOW + at + m, mask=m < blocks, other=2147483647),
                tl.load(HIGH + at + m, mask=m < blocks, other=0),
            )
            meets = (low < n + BN) & (high > n)
            begin = tl.minimum(begin, tl.min(tl.where(meets, m * FM, T), 0))
            end = tl.maximum(end, tl.max(tl.where(meets, m * FM + FM, 0), 0))
        return begin // BM * BM, tl.minimum(end, T)
    else:
        return 0, T


@triton.jit
def keys_backward(
    Q, K, V, GRADIENT, LOG_SUM, PLACE, MIDDLE, DK, DV, LOW, HIGH, VISIBLE, FIRST, LAST, CENTRE, scale, factor, steep, HEADS,
    SHARES, T, S, SIZE: tl.constexpr, VALUE: tl.constexpr, C: tl.constexpr, CV: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, FM: tl.constexpr, PLAIN: tl.constexpr, HIDES: tl.constexpr, WINDOW: tl.constexpr, GAUSS: tl.constexpr,
    SOFT: tl.constexpr, PICK: tl.constexpr, GIVES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of keys and values. Tiles lie with the keys in rows."""
    blocks = tl.cdiv(S, BN)
    row, n = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks * BN
    batch = row // HEADS
    j, c, v = n + tl.arange(0, BN), tl.arange(0, C), tl.arange(0, CV)
    seen = there(VISIBLE, batch, j, S, HIDES)
    keys, values = rows_of(K, row * S * SIZE, j, seen, c, SIZE), 0.0
    if SOFT:
        values = rows_of(V, row * S * VALUE, j, seen, v, VALUE)
    forward = tl.cdiv(T, FM)
    begin, end = queries_of(LOW, HIGH, row * forward, n, forward, T, FM, BM, BN, WINDOW)
    dk, dv = tl.zeros([BN, C], tl.float32), tl.zeros([BN, CV], tl.float32)
    for start in tl.range(begin, end, BM):
        i = start + tl.arange(0, BM)
        ok, at = i < T, row * T + i
        first, last = window_of(FIRST, LAST, (batch * SHARES + row % HEADS % SHARES) * T, i, ok, S, WINDOW)
        q = rows_of(Q, row * T * SIZE, i, ok, c, SIZE)
        s = tl.dot(keys, tl.trans(q), input_precision=PRECISION) * factor
        s = counted(s, j[:, None], seen[:, None], first[None, :], last[None, :], PLAIN, WINDOW)
        log_sum, middle = log_sum_of(LOG_SUM, at, ok), tl.load(MIDDLE + at, mask=ok, other=0.0)
        away, direct, gradient = s, s, q
        if GAUSS:
            away = j[:, None] - tl.load(CENTRE + at, mask=ok, other=0.0).to(tl.float32)[None, :]
        if GIVES:
            gradient = rows_of(GRADIENT, row * T * VALUE, i, ok, v, VALUE)
        if SOFT:
            direct = tl.dot(values, tl.trans(gradient), input_precision=PRECISION)
        weights, scores = score_gradients(s, direct, log_sum[None, :], middle[None, :], away, steep, GAUSS, SOFT)
        if PICK:
            weights = tl.where(j[:, None] == place_of(PLACE, at, ok)[None, :], 1.0, 0.0)
        if GIVES:
            dv = tl.dot(weights.to(gradient.dtype), gradient, dv, input_precision=PRECISION)
        dk = tl.dot(scores.to(q.dtype), q, dk, input_precision=PRECISION)
    put_rows(DK, row * S * SIZE, j, j < S, c, dk * scale, SIZE)
    if GIVES:
        put_rows(DV, row * S * VALUE, j, j < S, v, dv, VALUE)
