"""Triton: additive attention backward, tile by tile; additive.py launches it. Letters are those of additive_tiles.py.

With de_ij the gradient of a score, dq_id = 4 v_d Σ_j de_ij (r - r²), dk_jd is the same sum over i, and dv_d = -2 Σ_ij de_ij r,
for the 1 of 1 - 2r adds Σ_j de_ij = 0.
"""

import triton
import triton.language as tl

from regard.nn.kernels.attention.additive_tiles import FOUR, TWO, meet, ratio, visible_tile
from regard.nn.kernels.common_tiles import reciprocal


@triton.jit
def product_of(G, VALUES, n, i, j, T, S, E: tl.constexpr, TQ: tl.constexpr, TK: tl.constexpr, BE: tl.constexpr,
               KIND: tl.constexpr, PRECISION: tl.constexpr):  # fmt: skip
    """dα_ij = dc_i · v_j"""
    product = tl.zeros([TQ, TK], tl.float32)
    for start in range(0, E, BE):
        e = start + tl.arange(0, BE)
        g = tl.load(G + n * T * E + i[:, None] * E + e[None, :], mask=(i < T)[:, None] & (e < E)[None, :], other=0.0)
        v = tl.load(VALUES + n * S * E + j[None, :] * E + e[:, None], mask=(j < S)[None, :] & (e < E)[:, None], other=0.0)
        product = tl.dot(g.to(KIND), v.to(KIND), product, input_precision=PRECISION)
    return product


@triton.jit(do_not_specialize=["origin"])
def grad_tiles(SCORES, VALUES, G, LOG_SUM, MIDDLE, VISIBLE, FIRST, LAST, ACROSS, WEIGHTS, origin, begin, rows, heads, T, S,
                TARGET, SOURCE, E: tl.constexpr, TQ: tl.constexpr, TK: tl.constexpr, BE: tl.constexpr, KIND: tl.constexpr,
                PRECISION: tl.constexpr, MASKED: tl.constexpr, RANGED: tl.constexpr):  # fmt: skip
    """α_ij = e^(e_ij - level_i), and de_ij = α_ij (dα_ij - Σ_j α_ij dα_ij) in place of e_ij and, key by key, ACROSS."""
    first, start, place = tl.program_id(0) * TQ, tl.program_id(1) * TK, tl.program_id(2).to(tl.int64)
    n, row, j = origin + place, first + tl.arange(0, TQ), start + tl.arange(0, TK)
    if meet(VISIBLE, FIRST, LAST, n, begin + first, start, heads, T, S, TQ, TK, MASKED, RANGED):
        i, chunk, at = begin + row, place * rows * SOURCE, row[:, None] * SOURCE + j[None, :]
        product = product_of(G, VALUES, n, i, j, T, S, E, TQ, TK, BE, KIND, PRECISION)
        log_sum = tl.load(LOG_SUM + n * T + i, mask=i < T, other=float("inf"))
        middle = tl.load(MIDDLE + n * T + i, mask=i < T, other=0.0)
        ok = visible_tile(VISIBLE, FIRST, LAST, n, i, j, heads, T, S, MASKED, RANGED)
        weight = tl.where(ok, tl.exp(tl.load(SCORES + chunk + at) - log_sum[:, None]), 0.0)
        grad = weight * (product - middle[:, None])
        tl.store(WEIGHTS + chunk + at, weight.to(WEIGHTS.dtype.element_ty))
        tl.store(SCORES + chunk + at, grad)
        tl.store(ACROSS + chunk + row[:, None] + j[None, :] * rows, grad)


@triton.jit
def add_grad(GRAD, r, by_own, by_score_vector, QUERIES: tl.constexpr):
    """de (r - r²), and de r while it goes over the queries."""
    grad = tl.load(GRAD)
    if QUERIES:
        by_score_vector += grad * r
    return by_own + grad * (r - r * r), by_score_vector


@triton.jit
def add_grads(own, OTHER, GRADS, width, reach, by_own, by_score_vector, WIDTH: tl.constexpr, BT: tl.constexpr,
               QUERIES: tl.constexpr, FAST: tl.constexpr):  # fmt: skip
    """Adds a tile of the other side, four rows at a time, or fewer."""
    if reach <= FOUR:
        for t in range(0, BT, 4):
            w, x = own * tl.load(OTHER + t * WIDTH) + 1.0, own * tl.load(OTHER + (t + 1) * WIDTH) + 1.0
            y, z = own * tl.load(OTHER + (t + 2) * WIDTH) + 1.0, own * tl.load(OTHER + (t + 3) * WIDTH) + 1.0
            left, right = w * x, y * z
            both = reciprocal(left * right, FAST)
            left, right = both * right, both * left
            by_own, by_score_vector = add_grad(GRADS + t * width, left * x, by_own, by_score_vector, QUERIES)
            by_own, by_score_vector = add_grad(GRADS + (t + 1) * width, left * w, by_own, by_score_vector, QUERIES)
            by_own, by_score_vector = add_grad(GRADS + (t + 2) * width, right * z, by_own, by_score_vector, QUERIES)
            by_own, by_score_vector = add_grad(GRADS + (t + 3) * width, right * y, by_own, by_score_vector, QUERIES)
    elif reach <= TWO:
        for t in range(0, BT, 2):
            x, y = own * tl.load(OTHER + t * WIDTH) + 1.0, own * tl.load(OTHER + (t + 1) * WIDTH) + 1.0
            both = reciprocal(x * y, FAST)
            by_own, by_score_vector = add_grad(GRADS + t * width, both * y, by_own, by_score_vector, QUERIES)
            by_own, by_score_vector = add_grad(GRADS + (t + 1) * width, both * x, by_own, by_score_vector, QUERIES)
    else:
        for t in range(0, BT):
            r = ratio(own + tl.load(OTHER + t * WIDTH), FAST)
            by_own, by_score_vector = add_grad(GRADS + t * width, r, by_own, by_score_vector, QUERIES)
    return by_own, by_score_vector


@triton.jit(do_not_specialize=["origin"])
def side_tiles(OWN, OTHER, SCORE_VECTOR, REACH, VISIBLE, FIRST, LAST, GRADS, OUT, BY_SCORE_VECTOR, origin,
               begin, rows, heads, T, S, TARGET, SOURCE, D: tl.constexpr, WIDTH: tl.constexpr,
               UNITS: tl.constexpr, TQ: tl.constexpr, TK: tl.constexpr, MASKED: tl.constexpr,
               RANGED: tl.constexpr, QUERIES: tl.constexpr, FAST: tl.constexpr):  # fmt: skip
    """The gradient of the chunk's queries, and with it that of the score vector; or what the chunk adds to that of the keys.

    GRADS[sequence, other, own]: neighbours of one's own side lie next to each other.
    """
    BA: tl.constexpr = TQ if QUERIES else TK
    BT: tl.constexpr = TK if QUERIES else TQ
    tile, place = tl.program_id(0) * BA, tl.program_id(2).to(tl.int64)
    n, a = origin + place, tile + tl.arange(0, BA)[:, None]
    unit, d = tl.program_id(1) * UNITS + tl.arange(0, UNITS), tl.program_id(1) * UNITS + tl.arange(0, UNITS)[None, :]
    grads = GRADS + place * rows * SOURCE + a
    if QUERIES:
        a += begin
        width, others, length = rows, SOURCE, T
        own, other = OWN + n * TARGET * WIDTH, OTHER + n * SOURCE * WIDTH
    else:
        width, others, length = SOURCE, rows, S
        own, other = OWN + n * SOURCE * WIDTH, OTHER + n * TARGET * WIDTH + begin * WIDTH
    one, reach = tl.load(own + a * WIDTH + d), tl.load(REACH + n)
    by_own, by_score_vector = tl.zeros([BA, UNITS], tl.float32), tl.zeros([BA, UNITS], tl.float32)
    for t in range(0, others, BT):
        query, key = begin + t, tile
        if QUERIES:
            query, key = begin + tile, t
        if meet(VISIBLE, FIRST, LAST, n, query, key, heads, T, S, TQ, TK, MASKED, RANGED):
            by_own, by_score_vector = add_grads(
                one, other + t * WIDTH + d, grads + t * width, width, reach, by_own, by_score_vector, WIDTH, BT, QUERIES, FAST
            )
    gradient = 4.0 * tl.load(SCORE_VECTOR + n % heads * WIDTH + d) * by_own
    out, inside = OUT + n * length * D + a * D + d, (a < length) & (d < D)
    if QUERIES:
        tl.store(BY_SCORE_VECTOR + (n * TARGET + begin + tile) // TQ * WIDTH + unit, -2.0 * tl.sum(by_score_vector, 0))
    elif begin > 0:
        gradient += tl.load(out, mask=inside, other=0.0).to(tl.float32)
    tl.store(out, gradient.to(OUT.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["origin"])
def value_tiles(WEIGHTS, G, VISIBLE, FIRST, LAST, OUT, origin, begin, rows, heads, T, S, TARGET, SOURCE, E: tl.constexpr,
                TQ: tl.constexpr, TK: tl.constexpr, BE: tl.constexpr, KIND: tl.constexpr, PRECISION: tl.constexpr,
                MASKED: tl.constexpr, RANGED: tl.constexpr):  # fmt: skip
    """What the chunk adds to dv_j = Σ_i α_ij dc_i."""
    start, place = tl.program_id(0) * TK, tl.program_id(2).to(tl.int64)
    n, j, e = origin + place, start + tl.arange(0, TK), tl.program_id(1) * BE + tl.arange(0, BE)
    gradient = tl.zeros([TK, BE], tl.float32)
    for t in range(0, rows, TQ):
        if meet(VISIBLE, FIRST, LAST, n, begin + t, start, heads, T, S, TQ, TK, MASKED, RANGED):
            row = t + tl.arange(0, TQ)
            i = begin + row
            weights = tl.load(WEIGHTS + place * rows * SOURCE + row[:, None] * SOURCE + j[None, :])
            g = tl.load(G + n * T * E + i[:, None] * E + e[None, :], mask=(i < T)[:, None] & (e < E)[None, :], other=0.0)
            gradient = tl.dot(tl.trans(weights.to(KIND)), g.to(KIND), gradient, input_precision=PRECISION)
    out, inside = OUT + n * S * E + j[:, None] * E + e[None, :], (j < S)[:, None] & (e < E)[None, :]
    if begin > 0:
        gradient += tl.load(out, mask=inside, other=0.0).to(tl.float32)
    tl.store(out, gradient.to(OUT.dtype.element_ty), mask=inside)
