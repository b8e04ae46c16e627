"""Triton: additive attention forward, tile by tile; additive.py launches these kernels.

r = 1 / (1 + e^(2(q + k))) is all that a pair needs: tanh(q + k) = 1 - 2r, so e = Σ v_d - 2 Σ v_d r_d; tanh' = 4 (r - r²).
e^(2q) and e^(2k) are taken once each; two r = 1/x and r' = 1/y share one reciprocal z = 1/(xy): r = zy, r' = zx, as may four.
Where the REACH of a sequence, its largest |q| or |k|, is such that these products may overflow, fewer share one; where it is
larger still, q and k stay what they are, and each pair takes its own exponential.
"""

import triton
import triton.language as tl

from regard.nn.kernels.common_tiles import reciprocal

FOUR = tl.constexpr(5.5)  # the reach up to which four reciprocals are one: the product of four e^(2(q + k)), e^88, is a float32
TWO = tl.constexpr(11.0)


@triton.jit
def ratio(total, FAST: tl.constexpr):
    """r of q + k, whatever its size."""
    return reciprocal(1.0 + tl.exp2(total * 2.8853900817779268), FAST)


@triton.jit
def limits(FIRST, LAST, n, i, T, S, RANGED: tl.constexpr):
    """first_i and last_i; beyond the end of the queries, nothing lies between them."""
    if RANGED:
        return tl.load(FIRST + n * T + i, mask=i < T, other=S), tl.load(LAST + n * T + i, mask=i < T, other=-1)
    else:
        return tl.zeros_like(i), tl.zeros_like(i) + (S - 1)


@triton.jit
def seen(VISIBLE, n, j, heads, S, MASKED: tl.constexpr):
    """Whether key j is there to be looked at."""
    if MASKED:
        return tl.load(VISIBLE + n // heads * S + j, mask=j < S, other=0) != 0
    else:
        return j < S


@triton.jit
def visible_tile(VISIBLE, FIRST, LAST, n, i, j, heads, T, S, MASKED: tl.constexpr, RANGED: tl.constexpr):
    """[queries i, keys j]: first_i <= j <= last_i, and j is visible."""
    first, last = limits(FIRST, LAST, n, i, T, S, RANGED)
    inside = (j[None, :] >= first[:, None]) & (j[None, :] <= last[:, None])
    return inside & seen(VISIBLE, n, j, heads, S, MASKED)[None, :]


@triton.jit
def meet(VISIBLE, FIRST, LAST, n, begin, start, heads, T, S, TQ: tl.constexpr, TK: tl.constexpr, MASKED: tl.constexpr,
         RANGED: tl.constexpr):  # fmt: skip
    """Whether any of TQ queries from `begin` on looks at any of TK keys from `start` on: what does not meet is not computed."""
    yes = start < S
    if MASKED:
        yes &= tl.max(seen(VISIBLE, n, start + tl.arange(0, TK), heads, S, MASKED).to(tl.int32), 0) != 0
    if RANGED:
        first, last = limits(FIRST, LAST, n, begin + tl.arange(0, TQ), T, S, RANGED)
        yes &= (tl.min(first, 0) < start + TK) & (tl.max(last, 0) >= start)
    return yes


@triton.jit
def raise_tiles(X, REACH, BY_UNIT, BY_ROW, T, ROWS, D: tl.constexpr, UNITS: tl.constexpr, BR: tl.constexpr, BD: tl.constexpr,
                BOTH: tl.constexpr):  # fmt: skip
    """e^(2x), or x where it is large, filled up with x = 0: [units, rows], and [rows, units] if BOTH."""
    n = tl.program_id(0).to(tl.int64)
    t, d = tl.program_id(1) * BR + tl.arange(0, BR)[:, None], tl.program_id(2) * BD + tl.arange(0, BD)[None, :]
    x = tl.load(X + n * T * D + t * D + d, mask=(t < T) & (d < D), other=0.0).to(tl.float32)
    if tl.load(REACH + n) <= TWO:
        x = tl.exp2(x * 2.8853900817779268)
    tl.store(BY_UNIT + n * ROWS * UNITS + d * ROWS + t, x)
    if BOTH:
        tl.store(BY_ROW + n * ROWS * UNITS + t * UNITS + d, x)


@triton.jit
def two_terms(Q, K, V, d, TARGET, SOURCE):
    """v_d r_d + v_{d+1} r_{d+1} = (v_d y + v_{d+1} x) / (x y), as a fraction."""
    x = tl.load(Q + d * TARGET) * tl.load(K + d * SOURCE) + 1.0
    y = tl.load(Q + (d + 1) * TARGET) * tl.load(K + (d + 1) * SOURCE) + 1.0
    return tl.load(V + d) * y + tl.load(V + d + 1) * x, x * y


@triton.jit
def add_terms(s, Q, K, V, TARGET, SOURCE, reach, D: tl.constexpr, FAST: tl.constexpr):
    """s + Σ_d v_d r_d, four units at a time, or fewer; D is a multiple of 4."""
    if reach <= FOUR:
        for d in range(0, D, 4):
            above, below = two_terms(Q, K, V, d, TARGET, SOURCE)
            more, under = two_terms(Q, K, V, d + 2, TARGET, SOURCE)
            s += (above * under + more * below) * reciprocal(below * under, FAST)
    elif reach <= TWO:
        for d in range(0, D, 2):
            above, below = two_terms(Q, K, V, d, TARGET, SOURCE)
            s += above * reciprocal(below, FAST)
    else:
        for d in range(0, D):
            s += tl.load(V + d) * ratio(tl.load(Q + d * TARGET) + tl.load(K + d * SOURCE), FAST)
    return s


@triton.jit(do_not_specialize=["origin"])
def score_tiles(Q, K, SCORE_VECTOR, REACH, VISIBLE, FIRST, LAST, SCORES, origin, begin, rows, heads, T, S, TARGET, SOURCE,
                D: tl.constexpr, WIDTH: tl.constexpr, WHOLE: tl.constexpr, TQ: tl.constexpr, TK: tl.constexpr,
                MASKED: tl.constexpr, RANGED: tl.constexpr, FAST: tl.constexpr):  # fmt: skip
    """SCORES[sequence, row, key] of the chunk, e = Σ_d v_d - 2 Σ_d v_d r_d; tiles that do not meet are left as they are.

    A tile is [TQ, 2, TK / 2]: a thread keeps four queries by two times four keys, which it loads at once. It does so because
    such a tile is read from SCORES, although nothing of it is: that is what tells Triton which thread keeps what.
    """
    row, start, place = tl.program_id(0) * TQ, tl.program_id(1) * TK, tl.program_id(2).to(tl.int64)
    n, i = origin + place, tl.arange(0, TQ)[:, None, None]
    j = tl.arange(0, 2)[None, :, None] * (TK // 2) + tl.arange(0, TK // 2)[None, None, :]
    if meet(VISIBLE, FIRST, LAST, n, begin + row, start, heads, T, S, TQ, TK, MASKED, RANGED):
        scores = SCORES + place * rows * SOURCE + (row + i) * SOURCE + start + j
        score_vector, unit = SCORE_VECTOR + n % heads * WIDTH, tl.arange(0, WHOLE)
        queries, keys = Q + n * WIDTH * TARGET + begin + row + i, K + n * WIDTH * SOURCE + start + j
        total = tl.sum(tl.load(score_vector + unit, mask=unit < D, other=0.0), 0)
        s = tl.load(scores, mask=start + j < 0, other=0.0)
        s = add_terms(s, queries, keys, score_vector, TARGET, SOURCE, tl.load(REACH + n), D, FAST)
        tl.store(scores, total - 2.0 * s)


@triton.jit(do_not_specialize=["origin"])
def mix_tiles(SCORES, VALUES, VISIBLE, FIRST, LAST, CONTEXT, LOG_SUM, origin, begin, rows, heads, T, S, TARGET, SOURCE,
              E: tl.constexpr, TQ: tl.constexpr, TK: tl.constexpr, BE: tl.constexpr, KIND: tl.constexpr,
              PRECISION: tl.constexpr, MASKED: tl.constexpr, RANGED: tl.constexpr):  # fmt: skip
    """softmax(SCORES) VALUES and log Σ_j e^(e_ij), in one walk over keys that carries the highest score so far."""
    row, place = tl.program_id(0) * TQ, tl.program_id(2).to(tl.int64)
    n, i, e = origin + place, begin + row + tl.arange(0, TQ), tl.program_id(1) * BE + tl.arange(0, BE)
    scores = SCORES + place * rows * SOURCE + (row + tl.arange(0, TQ))[:, None] * SOURCE
    highest, norm = tl.full([TQ], float("-inf"), tl.float32), tl.zeros([TQ], tl.float32)
    mixed = tl.zeros([TQ, BE], tl.float32)
    for start in range(0, SOURCE, TK):
        if meet(VISIBLE, FIRST, LAST, n, begin + row, start, heads, T, S, TQ, TK, MASKED, RANGED):
            j = start + tl.arange(0, TK)
            ok = visible_tile(VISIBLE, FIRST, LAST, n, i, j, heads, T, S, MASKED, RANGED)
            s = tl.where(ok, tl.load(scores + j[None, :]), float("-inf"))
            higher = tl.maximum(highest, tl.max(s, 1))
            base = tl.where(higher == float("-inf"), 0.0, higher)
            p, fade = tl.exp(s - base[:, None]), tl.exp(highest - base)
            inside = (j < S)[:, None] & (e < E)[None, :]
            values = tl.load(VALUES + n * S * E + j[:, None] * E + e[None, :], mask=inside, other=0.0)
            norm = norm * fade + tl.sum(p, 1)
            mixed = tl.dot(p.to(KIND), values.to(KIND), mixed * fade[:, None], input_precision=PRECISION)
            highest = higher
    mixed = mixed / tl.where(norm == 0.0, 1.0, norm)[:, None]
    tl.store(CONTEXT + n * T * E + i[:, None] * E + e[None, :], mixed, mask=(i < T)[:, None] & (e < E)[None, :])
    if tl.program_id(1) == 0:
        tl.store(LOG_SUM + n * T + i, highest + tl.log(norm), mask=i < T)  # -∞ + log 0 where nothing is seen
