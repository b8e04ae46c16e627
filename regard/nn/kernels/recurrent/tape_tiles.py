"""Triton: one row attends to its tape, and backward. Programs of persistent_tape.py call these.

r = 1 / (1 + e^(2(q + k))) is all that a pair of query and key needs: tanh(q + k) = 1 - 2r, and its derivative is 4 (r - r²).
"""

import triton
import triton.language as tl

from regard.nn.kernels.common_tiles import half, line_of, lines_of


@triton.jit
def add_both(left, first, right, second):
    """Two sums in one reduction: (left, first) and (right, second) are pairs."""
    return left + right, first + second


@triton.jit
def counts(VISIBLE, row, i, BEFORE):
    """Whether a position is visible: those from before the scan may not be."""
    return tl.load(VISIBLE + row * BEFORE + i, mask=i < BEFORE, other=1) != 0


@triton.jit
def row_back(
    Q, TH, TC, TK, S, CA, LOG_SUM, VISIBLE, DS, DCA, DQ, DV, MIDDLE, v, row, t, T, BEFORE, d, H: tl.constexpr, KK: tl.constexpr,
    BJ: tl.constexpr, MEMORY: tl.constexpr, FAST: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Step t attended to all earlier positions: the gradient of its query, and what it adds to that of v."""
    tape, line = (BEFORE + T) * H, (T + 1) * H
    at = row * (T * H) + t * H
    asked, ds = line_of(Q, at, d, H), line_of(DS, row * line + (t + 1) * H, d, H)
    middle = middle_of(S, CA, DS, DCA, row, t, T, d, H, MEMORY)
    dca = ds
    if MEMORY:
        dca = line_of(DCA, at, d, H)
    tl.store(MIDDLE + row * T + t, middle)
    log_sum = tl.sum(v, axis=0) - tl.load(LOG_SUM + row * T + t)
    by_query, by_vector = tl.zeros([BJ, KK], tl.float32), tl.zeros([BJ, KK], tl.float32)
    for start in tl.range(0, BEFORE + t, BJ, num_stages=STAGES):
        i = start + tl.arange(0, BJ)
        there = i < BEFORE + t
        keys, direct = lines_of(TK, row * tape, H, i, there, d, H), lines_of(TH, row * tape, H, i, there, d, H) * ds[None, :]
        if MEMORY:
            direct += lines_of(TC, row * tape, H, i, there, d, H) * dca[None, :]
        ok = there & counts(VISIBLE, row, i, BEFORE)
        r = half(keys, asked[None, :], FAST)
        below, above = tl.reduce((r * v[None, :], direct), 1, add_both)
        weight = tl.where(ok, tl.exp(log_sum - 2.0 * below), 0.0)
        score = weight * (above - middle)
        by_vector += score[:, None] * r
        by_query += score[:, None] * (r - r * r)
    tl.store(DQ + at + d, (4.0 * v * tl.sum(by_query, axis=0)).to(DQ.dtype.element_ty), mask=d < H)
    so_far = tl.load(DV + row * H + d, mask=d < H, other=0.0)
    tl.store(DV + row * H + d, so_far - 2.0 * tl.sum(by_vector, axis=0), mask=d < H)


@triton.jit
def middle_of(S, CA, DS, DCA, row, t, T, d, H: tl.constexpr, MEMORY: tl.constexpr):
    """Σ_i α_i dα_i of step t, which is s · ds + c' · dc'."""
    line = row * ((T + 1) * H) + (t + 1) * H
    products = line_of(DS, line, d, H) * line_of(S, line, d, H)
    if MEMORY:
        at = row * (T * H) + t * H
        products += line_of(DCA, at, d, H) * line_of(CA, at, d, H)
    return tl.sum(products, axis=0)


@triton.jit
def column_back(
    Q, TH, TC, TK, LOG_SUM, DS, DCA, GH, GC, GK, MIDDLE, v, row, position, begin, T, BEFORE, d, H: tl.constexpr,
    KK: tl.constexpr, BJ: tl.constexpr, MEMORY: tl.constexpr, FAST: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The steps from `begin` on attended to this position: what they add to the gradients of its key and its values."""
    tape, line = (BEFORE + T) * H, (T + 1) * H
    at = row * tape + position * H
    key, hidden = line_of(TK, at, d, H), line_of(TH, at, d, H)
    most = tl.sum(v, axis=0)
    memory = hidden
    if MEMORY:
        memory = line_of(TC, at, d, H)
    by_hidden, by_memory, by_key = (
        tl.zeros([BJ, KK], tl.float32),
        tl.zeros([BJ, KK], tl.float32),
        tl.zeros([BJ, KK], tl.float32),
    )
    for start in tl.range(begin, T, BJ, num_stages=STAGES):
        i = start + tl.arange(0, BJ)
        ok = i < T
        log_sum = tl.load(LOG_SUM + row * T + i, mask=ok, other=1e30, cache_modifier=".cg")
        middle = tl.load(MIDDLE + row * T + i, mask=ok, other=0.0, cache_modifier=".cg")
        queries, ds = lines_of(Q, row * (T * H), H, i, ok, d, H), lines_of(DS, row * line + H, H, i, ok, d, H)
        direct, dca = ds * hidden[None, :], ds
        if MEMORY:
            dca = lines_of(DCA, row * (T * H), H, i, ok, d, H)
            direct += dca * memory[None, :]
        r = half(queries, key[None, :], FAST)
        below, above = tl.reduce((r * v[None, :], direct), 1, add_both)
        weight = tl.where(ok, tl.exp(most - log_sum - 2.0 * below), 0.0)
        by_hidden += weight[:, None] * ds
        if MEMORY:
            by_memory += weight[:, None] * dca
        score = weight * (above - middle)
        by_key += score[:, None] * (r - r * r)
    add_line(GH, at, d, tl.sum(by_hidden, axis=0), H)
    add_line(GK, at, d, 4.0 * v * tl.sum(by_key, axis=0), H)
    if MEMORY:
        add_line(GC, at, d, tl.sum(by_memory, axis=0), H)


@triton.jit
def add_line(S, at, d, more, H: tl.constexpr):
    tl.store(S + at + d, (line_of(S, at, d, H) + more).to(S.dtype.element_ty), mask=d < H)
