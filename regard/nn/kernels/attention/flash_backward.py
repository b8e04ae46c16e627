"""Triton: the way back of flash_tiles.py. Weights are computed again, by queries in one kernel, by keys in another: no races.

With p = 2^s / Σ 2^s and w = p times the Gaussian, the gradient of a score is w (dc · v) - p · middle, where the middle of a
query is Σ_j w_ij (dc_i · v_j) = dc_i · c_i, less what reaches the logarithm of its sum.
"""

import triton
import triton.language as tl

from regard.nn.kernels.attention.flash_tiles import counted, put_rows, row_products, rows_of, span, there, window_of

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def level_of(LEVEL, at, ok):
    """ln Σ e^s in powers of two; +∞ for an empty sum, so that all its weights are 0."""
    level = tl.load(LEVEL + at, mask=ok, other=float("-inf"))
    return tl.where(level > float("-inf"), level * LOG2E, float("inf"))


@triton.jit
def gradient_at(G, at, ok, level, WANTED: tl.constexpr):
    """The gradient of a logarithm of a sum; 0 if the sum was empty."""
    if WANTED:
        return tl.where(level < float("inf"), tl.load(G + at, mask=ok, other=0.0), 0.0)
    else:
        return tl.zeros_like(level)


@triton.jit
def place_of(PLACE, at, i, ok, WANTED: tl.constexpr):
    """Where a choice fell; -1 for nowhere."""
    if WANTED:
        return tl.load(PLACE + at, mask=ok, other=-1).to(tl.int32)
    else:
        return 0 * i - 1


@triton.jit
def middle_of(MIXED, GRADIENT, SLACK, row, i, ok, T, level, VALUE: tl.constexpr, SOFT: tl.constexpr, SLACKS: tl.constexpr):
    """dc_i · c_i, and the slack: what reaches log p of the chosen key, less what reaches the logarithm of the sum."""
    middle = gradient_at(SLACK, row * T + i, ok, level, SLACKS)
    if SOFT:
        at = row * T * VALUE
        middle += row_products(MIXED, at, i, ok, GRADIENT, at, i, ok, VALUE, 64)
    return tl.where(level < float("inf"), middle, 0.0)


@triton.jit
def slopes(
    s, direct, j, level, middle, away, steep, place, chosen, same, matched, by_match, GAUSS: tl.constexpr, SOFT: tl.constexpr,
    CHOICE: tl.constexpr, MATCH: tl.constexpr,
):  # fmt: skip
    """The weights and the gradients of the scores of a tile, whichever way it lies; `direct` is dc · v."""
    weights = tl.exp2(s - level)
    slope = -middle * weights
    if GAUSS:
        weights = weights * tl.exp2(-steep * away * away)
    if SOFT:
        slope += weights * direct
    if CHOICE:
        slope += tl.where(j == place, chosen, 0.0)
    if MATCH:
        slope += tl.where(same, tl.exp2(s - matched) * by_match, 0.0)
    return weights, slope


@triton.jit
def back_query(
    Q, K, V, MIXED, GRADIENT, LEVEL, MATCHED, PLACE, SLACK, BY_CHOICE, BY_MATCH, MIDDLE, DQ, DCENTRE, VISIBLE, FIRST, LAST,
    CENTRE, WORDS, TARGET, scale, factor, steep, HEADS, SHARES, T, S, SIZE: tl.constexpr, VALUE: tl.constexpr, C: tl.constexpr,
    CV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, PLAIN: tl.constexpr, HIDES: tl.constexpr, WINDOW: tl.constexpr,
    GAUSS: tl.constexpr, SOFT: tl.constexpr, CHOICE: tl.constexpr, SLACKS: tl.constexpr, MATCH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of a block of queries and of their centres; leaves their middles for back_keys."""
    blocks, block = tl.cdiv(T, BM), tl.program_id(0) % tl.cdiv(T, BM)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    batch = row // HEADS
    i, c, v = block * BM + tl.arange(0, BM), tl.arange(0, C), tl.arange(0, CV)
    ok, at = i < T, row * T + i
    first, last = window_of(FIRST, LAST, (batch * SHARES + row % HEADS % SHARES) * T, i, ok, S, WINDOW)
    low, high = span(first, last, S, BN, WINDOW)
    q = rows_of(Q, row * T * SIZE, i, ok, c, SIZE)
    level = level_of(LEVEL, at, ok)
    middle = middle_of(MIXED, GRADIENT, SLACK, row, i, ok, T, level, VALUE, SOFT, SLACKS)
    tl.store(MIDDLE + at, middle, mask=ok)
    place, chosen = place_of(PLACE, at, i, ok, CHOICE), gradient_at(BY_CHOICE, at, ok, level, CHOICE)
    centre, target = 0.0 * i, 0 * i
    matched, by_match = level, level
    gradient = q
    if SOFT:
        gradient = rows_of(GRADIENT, row * T * VALUE, i, ok, v, VALUE)
    if GAUSS:
        centre = tl.load(CENTRE + at, mask=ok, other=0.0).to(tl.float32)
    if MATCH:
        target = tl.load(TARGET + batch * T + i, mask=ok, other=-1).to(tl.int32)
        matched = level_of(MATCHED, at, ok)
        by_match = gradient_at(BY_MATCH, at, ok, matched, MATCH)
    dq, dcentre = tl.zeros([BM, C], tl.float32), tl.zeros([BM], tl.float32)
    for start in tl.range(low, high, BN):
        j = start + tl.arange(0, BN)
        seen = there(VISIBLE, batch, j, S, HIDES)
        keys = rows_of(K, row * S * SIZE, j, seen, c, SIZE)
        s = tl.dot(q, tl.trans(keys), input_precision=PRECISION) * factor
        s = counted(s, j[None, :], seen[None, :], first[:, None], last[:, None], PLAIN, WINDOW)
        direct, same = s, s > 0.0
        if SOFT:
            values = rows_of(V, row * S * VALUE, j, seen, v, VALUE)
            direct = tl.dot(gradient, tl.trans(values), input_precision=PRECISION)
        if MATCH:
            same = tl.load(WORDS + batch * S + j, mask=seen, other=-1).to(tl.int32)[None, :] == target[:, None]
        away = j[None, :] - centre[:, None]
        weights, slope = slopes(
            s, direct, j[None, :], level[:, None], middle[:, None], away, steep, place[:, None], chosen[:, None], same,
            matched[:, None], by_match[:, None], GAUSS, SOFT, CHOICE, MATCH,
        )  # fmt: skip
        if GAUSS:
            dcentre += tl.sum(weights * direct * away, axis=1)
        dq = tl.dot(slope.to(keys.dtype), keys, dq, input_precision=PRECISION)
    put_rows(DQ, row * T * SIZE, i, ok, c, dq * scale, SIZE)
    if GAUSS:
        tl.store(DCENTRE + at, dcentre * (2.0 * steep / LOG2E), mask=ok)


@triton.jit
def reach(LOW, HIGH, at, n, blocks, T, FM: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, WINDOW: tl.constexpr):
    """Where a loop over the queries that may look at keys [n, n + BN) begins and ends; FM queries were one block of `look`."""
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
def back_keys(
    Q, K, V, GRADIENT, LEVEL, MATCHED, PLACE, BY_CHOICE, BY_MATCH, MIDDLE, DK, DV, LOW, HIGH, VISIBLE, FIRST, LAST, CENTRE,
    WORDS, TARGET, scale, factor, steep, HEADS, SHARES, T, S, SIZE: tl.constexpr, VALUE: tl.constexpr, C: tl.constexpr,
    CV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, FM: tl.constexpr, PLAIN: tl.constexpr, HIDES: tl.constexpr,
    WINDOW: tl.constexpr, GAUSS: tl.constexpr, SOFT: tl.constexpr, PICK: tl.constexpr, CHOICE: tl.constexpr,
    GIVES: tl.constexpr, MATCH: tl.constexpr, PRECISION: tl.constexpr,
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
    words = 0 * j
    if MATCH:
        words = tl.load(WORDS + batch * S + j, mask=seen, other=-1).to(tl.int32)
    looked = tl.cdiv(T, FM)
    begin, end = reach(LOW, HIGH, row * looked, n, looked, T, FM, BM, BN, WINDOW)
    dk, dv = tl.zeros([BN, C], tl.float32), tl.zeros([BN, CV], tl.float32)
    for start in tl.range(begin, end, BM):
        i = start + tl.arange(0, BM)
        ok, at = i < T, row * T + i
        first, last = window_of(FIRST, LAST, (batch * SHARES + row % HEADS % SHARES) * T, i, ok, S, WINDOW)
        q = rows_of(Q, row * T * SIZE, i, ok, c, SIZE)
        s = tl.dot(keys, tl.trans(q), input_precision=PRECISION) * factor
        s = counted(s, j[:, None], seen[:, None], first[None, :], last[None, :], PLAIN, WINDOW)
        level, middle = level_of(LEVEL, at, ok), tl.load(MIDDLE + at, mask=ok, other=0.0)
        place, chosen = place_of(PLACE, at, i, ok, PICK), gradient_at(BY_CHOICE, at, ok, level, CHOICE)
        away, matched, by_match, direct, same, gradient = s, level, level, s, s > 0.0, q
        if GAUSS:
            away = j[:, None] - tl.load(CENTRE + at, mask=ok, other=0.0).to(tl.float32)[None, :]
        if MATCH:
            same = words[:, None] == tl.load(TARGET + batch * T + i, mask=ok, other=-1).to(tl.int32)[None, :]
            matched = level_of(MATCHED, at, ok)
            by_match = gradient_at(BY_MATCH, at, ok, matched, MATCH)
        if GIVES:
            gradient = rows_of(GRADIENT, row * T * VALUE, i, ok, v, VALUE)
        if SOFT:
            direct = tl.dot(values, tl.trans(gradient), input_precision=PRECISION)
        weights, slope = slopes(
            s, direct, j[:, None], level[None, :], middle[None, :], away, steep, place[None, :], chosen[None, :], same,
            matched[None, :], by_match[None, :], GAUSS, SOFT, CHOICE, MATCH,
        )  # fmt: skip
        if PICK:
            weights = tl.where(j[:, None] == place[None, :], 1.0, 0.0)
        if GIVES:
            dv = tl.dot(weights.to(gradient.dtype), gradient, dv, input_precision=PRECISION)
        dk = tl.dot(slope.to(q.dtype), q, dk, input_precision=PRECISION)
    put_rows(DK, row * S * SIZE, j, j < S, c, dk * scale, SIZE)
    if GIVES:
        put_rows(DV, row * S * VALUE, j, j < S, v, dv, VALUE)
