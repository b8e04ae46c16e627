"""Triton: attention of sentences so short that one tile holds all their keys. short.py says what is computed.

Scores are powers of two, s = q · k · scale / ln 2, so that e^(scale q · k) = 2^s. What does not count has s = -∞.
"""

import triton
import triton.language as tl

LOWEST = tl.constexpr(-1.0e30)  # below every score, yet finite: 2^(-∞ - LOWEST) is 0


@triton.jit
def inside(ok, WIDTH: tl.constexpr, C: tl.constexpr):
    if WIDTH == C:
        return ok[:, None]
    else:
        return ok[:, None] & (tl.arange(0, C) < WIDTH)[None, :]


@triton.jit
def rows_of(X, r, stride, ok, WIDTH: tl.constexpr, C: tl.constexpr, KIND: tl.constexpr):
    """Rows r of a matrix; 0 where there are none."""
    at = X + r[:, None] * stride + tl.arange(0, C)[None, :]
    return tl.load(at, mask=inside(ok, WIDTH, C), other=0.0).to(KIND)


@triton.jit
def put_rows(X, r, stride, ok, tile, WIDTH: tl.constexpr, C: tl.constexpr):
    at = X + r[:, None] * stride + tl.arange(0, C)[None, :]
    tl.store(at, tile.to(X.dtype.element_ty), mask=inside(ok, WIDTH, C))


@triton.jit
def seen_of(VISIBLE, batch, j, S, HIDES: tl.constexpr):
    """Whether j is a key at all, and one to be seen."""
    ok = j < S
    if HIDES:
        ok = ok & (tl.load(VISIBLE + batch * S + j, mask=ok, other=0) != 0)
    return ok


@triton.jit
def last_of(LAST, i, stride, T, S, LIMITS: tl.constexpr, CAUSAL: tl.constexpr):
    """Each query's last key."""
    last = 0 * i + S - 1
    if LIMITS:
        last = tl.minimum(last, tl.load(LAST + i * stride, mask=i < T, other=-1).to(tl.int32))
    if CAUSAL:
        last = tl.minimum(last, i)
    return last


@triton.jit
def parts_of(q, k, j, seen, last, factor, PRECISION: tl.constexpr):
    """2^s over the largest of its row, and their sums, 1 for rows that see nothing."""
    s = tl.dot(q, tl.trans(k), input_precision=PRECISION) * factor
    s = tl.where(seen[None, :] & (j[None, :] <= last[:, None]), s, float("-inf"))
    parts = tl.exp2(s - tl.maximum(tl.max(s, axis=1), LOWEST)[:, None])
    total = tl.sum(parts, axis=1)
    return parts, tl.where(total > 0.0, total, 1.0)


@triton.jit
def attend_short(
    Q, K, V, MIXED, VISIBLE, LAST, qb, qh, qt, kb, kh, kt, vb, vh, vt, mb, mh, mt, lb, lh, lt, factor, HEADS, T, S,
    SIZE: tl.constexpr, VALUE: tl.constexpr, D: tl.constexpr, E: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BLOCKS: tl.constexpr, PAIRS: tl.constexpr, HIDES: tl.constexpr, LIMITS: tl.constexpr, CAUSAL: tl.constexpr,
    KIND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """c_i = Σ_j α_ij v_j of some heads of one sentence."""
    shares = HEADS // PAIRS
    batch, first = (tl.program_id(0) // shares).to(tl.int64), tl.program_id(0) % shares * PAIRS
    j = tl.arange(0, BN)
    seen = seen_of(VISIBLE, batch, j, S, HIDES)
    for head in tl.range(first, first + PAIRS):
        k = rows_of(K + batch * kb + head * kh, j, kt, seen, SIZE, D, KIND)
        v = rows_of(V + batch * vb + head * vh, j, vt, seen, VALUE, E, KIND)
        for block in tl.range(0, BLOCKS):
            i = block * BM + tl.arange(0, BM)
            q = rows_of(Q + batch * qb + head * qh, i, qt, i < T, SIZE, D, KIND)
            last = last_of(LAST + batch * lb + head * lh, i, lt, T, S, LIMITS, CAUSAL)
            parts, total = parts_of(q, k, j, seen, last, factor, PRECISION)
            mixed = tl.dot(parts.to(KIND), v, input_precision=PRECISION) / total[:, None]
            put_rows(MIXED + batch * mb + head * mh, i, mt, i < T, mixed, VALUE, E)


@triton.jit
def attend_short_backward(
    Q, K, V, G, DQ, DK, DV, VISIBLE, LAST, qb, qh, qt, kb, kh, kt, vb, vh, vt, gb, gh, gt, dqb, dqh, dqt, dkb, dkh, dkt,
    dvb, dvh, dvt, lb, lh, lt, factor, scale, HEADS, T, S, SIZE: tl.constexpr, VALUE: tl.constexpr, D: tl.constexpr,
    E: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BLOCKS: tl.constexpr, PAIRS: tl.constexpr, HIDES: tl.constexpr,
    LIMITS: tl.constexpr, CAUSAL: tl.constexpr, KIND: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dv_j = Σ_i α_ij g_i; with ds_ij = α_ij (g_i · v_j - Σ_k α_ik g_i · v_k): dq_i = Σ_j ds_ij k_j, dk_j = Σ_i ds_ij q_i"""
    shares = HEADS // PAIRS
    batch, first = (tl.program_id(0) // shares).to(tl.int64), tl.program_id(0) % shares * PAIRS
    j = tl.arange(0, BN)
    seen = seen_of(VISIBLE, batch, j, S, HIDES)
    for head in tl.range(first, first + PAIRS):
        k = rows_of(K + batch * kb + head * kh, j, kt, seen, SIZE, D, KIND)
        v = rows_of(V + batch * vb + head * vh, j, vt, seen, VALUE, E, KIND)
        dk, dv = tl.zeros([BN, D], tl.float32), tl.zeros([BN, E], tl.float32)
        for block in tl.range(0, BLOCKS):
            i = block * BM + tl.arange(0, BM)
            q = rows_of(Q + batch * qb + head * qh, i, qt, i < T, SIZE, D, KIND)
            g = rows_of(G + batch * gb + head * gh, i, gt, i < T, VALUE, E, KIND)
            last = last_of(LAST + batch * lb + head * lh, i, lt, T, S, LIMITS, CAUSAL)
            parts, total = parts_of(q, k, j, seen, last, factor, PRECISION)
            weights = parts / total[:, None]
            dv = tl.dot(tl.trans(weights.to(KIND)), g, dv, input_precision=PRECISION)
            grads = tl.dot(g, tl.trans(v), input_precision=PRECISION)
            grads = weights * (grads - tl.sum(weights * grads, axis=1)[:, None])
            ds = grads.to(KIND)
            dq = tl.dot(ds, k, input_precision=PRECISION) * scale
            put_rows(DQ + batch * dqb + head * dqh, i, dqt, i < T, dq, SIZE, D)
            dk = tl.dot(tl.trans(ds), q, dk, input_precision=PRECISION)
        put_rows(DK + batch * dkb + head * dkh, j, dkt, j < S, dk * scale, SIZE, D)
        put_rows(DV + batch * dvb + head * dvh, j, dvt, j < S, dv, VALUE, E)
