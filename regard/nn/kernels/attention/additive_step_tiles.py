"""Triton: one query attends to its sentence's keys, that step's backward, and the gradients of the keys of all steps.

With r = 1 / (1 + e^(2(q + k))):  w · tanh(q + k) = Σ w - 2 w · r, where softmax forgets Σ w, and tanh' = 4 (r - r²).
A row is one query of one head of one sentence; j are positions of the source, d elements of a key, e elements of a value.
Lines that are not visible are read and then left out, so that no load waits for another's result.
"""

import triton
import triton.language as tl

from regard.nn.kernels.common_tiles import half, line_of, lines_of


@triton.jit
def seen(VISIBLE, sentence, j, SOURCE, MASKED: tl.constexpr):
    """Which positions may be looked at."""
    if MASKED:
        return tl.load(VISIBLE + sentence * SOURCE + j, mask=j < SOURCE, other=0) != 0
    else:
        return j < SOURCE


@triton.jit
def scores_of(keys, ok, asked, score_vector, FAST: tl.constexpr):
    """w · tanh(q + k_j), less Σ w."""
    return tl.where(ok, -2.0 * tl.sum(half(keys, asked[None, :], FAST) * score_vector[None, :], axis=1), -1e30)


@triton.jit
def share_of(score, ok, most, whole):
    """α = e^(s - max) / Σ; 0 where nothing is visible."""
    return tl.where(ok, tl.exp(score - most) / tl.maximum(whole, 1e-30), 0.0)


@triton.jit
def sum_of(weight, lines):
    """Σ_j α_j v_j; where α is 0, v may be anything."""
    return tl.sum(tl.where((weight != 0.0)[:, None], weight[:, None] * lines, 0.0), axis=0)


@triton.jit
def attend_step(
    Q, K, V, VISIBLE, SCORE_VECTOR, CONTEXT, WEIGHTS, SOURCE, QUERIES, HEADS, kb, kh, ks, vb, vh, vs, SIZE: tl.constexpr,
    VALUE: tl.constexpr, D: tl.constexpr, E: tl.constexpr, BJ: tl.constexpr, MASKED: tl.constexpr, ONE: tl.constexpr,
    FAST: tl.constexpr,
):  # fmt: skip
    """α = softmax(w · tanh(q + k)) and c = Σ α v of one row. More than ONE tile: scores wait where the weights will be."""
    row = tl.program_id(0).to(tl.int64)
    head, sentence = row % HEADS, row // HEADS // QUERIES
    K += sentence * kb + head * kh
    V += sentence * vb + head * vh
    WEIGHTS += row * SOURCE
    d, e, tile = tl.arange(0, D), tl.arange(0, E), tl.arange(0, BJ)
    asked, score_vector = line_of(Q, row * SIZE, d, SIZE), line_of(SCORE_VECTOR, head * SIZE, d, SIZE)
    if ONE:
        ok, there = seen(VISIBLE, sentence, tile, SOURCE, MASKED), tile < SOURCE
        keys, values = lines_of(K, 0, ks, tile, there, d, SIZE), lines_of(V, 0, vs, tile, there, e, VALUE)
        score = scores_of(keys, ok, asked, score_vector, FAST)
        most = tl.max(score, axis=0)
        weight = share_of(score, ok, most, tl.sum(tl.where(ok, tl.exp(score - most), 0.0), axis=0))
        tl.store(WEIGHTS + tile, weight, mask=tile < SOURCE)
        context = sum_of(weight, values)
    else:
        most, whole = -1e30, 0.0
        for start in range(0, SOURCE, BJ):
            j = start + tile
            ok = seen(VISIBLE, sentence, j, SOURCE, MASKED)
            score = scores_of(lines_of(K, 0, ks, j, j < SOURCE, d, SIZE), ok, asked, score_vector, FAST)
            tl.store(WEIGHTS + j, score, mask=j < SOURCE)
            higher = tl.maximum(most, tl.max(score, axis=0))
            whole = whole * tl.exp(most - higher) + tl.sum(tl.where(ok, tl.exp(score - higher), 0.0), axis=0)
            most = higher
        tl.debug_barrier()
        context = tl.zeros([E], tl.float32)
        for start in range(0, SOURCE, BJ):
            j = start + tile
            ok = seen(VISIBLE, sentence, j, SOURCE, MASKED)
            weight = share_of(tl.load(WEIGHTS + j, mask=j < SOURCE, other=-1e30), ok, most, whole)
            tl.debug_barrier()  # several warps read what one of them overwrites
            tl.store(WEIGHTS + j, weight, mask=j < SOURCE)
            context += sum_of(weight, lines_of(V, 0, vs, j, j < SOURCE, e, VALUE))
    tl.store(CONTEXT + row * VALUE + e, context.to(CONTEXT.dtype.element_ty), mask=e < VALUE)


@triton.jit
def pulled(values, j, weight, gradient, GW, WATCHED: tl.constexpr):
    """dα_j = g · v_j, and what comes into the weights themselves where they are WATCHED."""
    direct = tl.sum(values * gradient[None, :], axis=1)
    if WATCHED:
        direct += tl.load(GW + j, mask=weight != 0.0, other=0.0).to(tl.float32)
    return tl.where(weight != 0.0, direct, 0.0)


@triton.jit
def by_query(keys, grad, asked, FAST: tl.constexpr):
    """Σ_j ds_j (r - r²)"""
    r = half(keys, asked[None, :], FAST)
    return sum_of(grad, r - r * r)


@triton.jit
def attend_step_backward(
    Q, K, V, SCORE_VECTOR, WEIGHTS, G, GW, DQ, DS, SOURCE, QUERIES, HEADS, kb, kh, ks, vb, vh, vs, gb, gq, gh,
    SIZE: tl.constexpr, VALUE: tl.constexpr, D: tl.constexpr, E: tl.constexpr, BJ: tl.constexpr, WATCHED: tl.constexpr,
    ONE: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """ds = α (dα - Σ α dα) and dq = Σ_j ds_j w (1 - tanh²) of one row. More than ONE tile: dα waits where ds will be."""
    row = tl.program_id(0).to(tl.int64)
    head, sentence = row % HEADS, row // HEADS // QUERIES
    K += sentence * kb + head * kh
    V += sentence * vb + head * vh
    WEIGHTS += row * SOURCE
    DS += row * SOURCE
    GW += row * SOURCE
    d, e, tile = tl.arange(0, D), tl.arange(0, E), tl.arange(0, BJ)
    asked, score_vector = line_of(Q, row * SIZE, d, SIZE), line_of(SCORE_VECTOR, head * SIZE, d, SIZE)
    gradient = line_of(G, sentence * gb + row // HEADS % QUERIES * gq + head * gh, e, VALUE)
    if ONE:
        weight = tl.load(WEIGHTS + tile, mask=tile < SOURCE, other=0.0)
        keys, values = lines_of(K, 0, ks, tile, tile < SOURCE, d, SIZE), lines_of(V, 0, vs, tile, tile < SOURCE, e, VALUE)
        direct = pulled(values, tile, weight, gradient, GW, WATCHED)
        grad = weight * (direct - tl.sum(weight * direct, axis=0))
        tl.store(DS + tile, grad, mask=tile < SOURCE)
        into = by_query(keys, grad, asked, FAST)
    else:
        middle = 0.0
        for start in range(0, SOURCE, BJ):
            j = start + tile
            weight = tl.load(WEIGHTS + j, mask=j < SOURCE, other=0.0)
            direct = pulled(lines_of(V, 0, vs, j, j < SOURCE, e, VALUE), j, weight, gradient, GW, WATCHED)
            tl.store(DS + j, direct, mask=j < SOURCE)
            middle += tl.sum(weight * direct, axis=0)
        tl.debug_barrier()
        into = tl.zeros([D], tl.float32)
        for start in range(0, SOURCE, BJ):
            j = start + tile
            weight = tl.load(WEIGHTS + j, mask=j < SOURCE, other=0.0)
            grad = weight * (tl.load(DS + j, mask=j < SOURCE, other=0.0) - middle)
            tl.debug_barrier()  # several warps read what one of them overwrites
            tl.store(DS + j, grad, mask=j < SOURCE)
            into += by_query(lines_of(K, 0, ks, j, j < SOURCE, d, SIZE), grad, asked, FAST)
    tl.store(DQ + row * SIZE + d, (4.0 * score_vector * into).to(DQ.dtype.element_ty), mask=d < SIZE)


@triton.jit
def keys_backward(
    Q, K, VISIBLE, SCORE_VECTOR, DS, DK, DSCORE_VECTOR, SOURCE, STEPS, HEADS, kb, kh, ks, gb, gh, gs, SIZE: tl.constexpr,
    D: tl.constexpr, BJ: tl.constexpr, MASKED: tl.constexpr, FAST: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """All looks at one tile of keys: dk_j = Σ_i ds_ij w (1 - tanh²), and the tile's share of dw = Σ_ij ds_ij tanh."""
    pair, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    head, sentence = pair % HEADS, pair // HEADS
    d, j = tl.arange(0, D), part * BJ + tl.arange(0, BJ)
    ok = seen(VISIBLE, sentence, j, SOURCE, MASKED)
    keys = lines_of(K, sentence * kb + head * kh, ks, j, ok, d, SIZE)
    score_vector = line_of(SCORE_VECTOR, head * SIZE, d, SIZE)
    by_key, by_score_vector = tl.zeros([BJ, D], tl.float32), tl.zeros([BJ, D], tl.float32)
    for i in tl.range(0, STEPS, num_stages=STAGES):
        row = (sentence * STEPS + i) * HEADS + head
        grad = tl.load(DS + row * SOURCE + j, mask=ok, other=0.0)[:, None]
        r = half(keys, line_of(Q, row * SIZE, d, SIZE)[None, :], FAST)
        by_score_vector += grad * r
        by_key += grad * (r - r * r)
    inside = (j < SOURCE)[:, None] & (d < SIZE)[None, :]
    place = DK + sentence * gb + head * gh + j[:, None] * gs + d[None, :]
    tl.store(place, (4.0 * score_vector[None, :] * by_key).to(DK.dtype.element_ty), mask=inside)
    share = DSCORE_VECTOR + (pair * tl.num_programs(1) + part) * SIZE
    tl.store(share + d, -2.0 * tl.sum(by_score_vector, axis=0), mask=d < SIZE)
