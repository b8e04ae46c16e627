"""Triton: the scan of a cell that attends to its past, in one launch (nn/recurrent/eager_tape.py has the same in plain steps).

As in persistent.py a group of programs shares rows of the batch and each program owns some units. Between the products of a
step, which are cut by units, stands the attention, which is cut by rows: three meetings a step in both directions.
W holds the gates' blocks, then the query's, then the key's.
"""

import triton
import triton.language as tl

from regard.nn.kernels.common_tiles import half, line_of, lines_of
from regard.nn.kernels.recurrent.tape_tiles import column_back, counts, middle_of, row_back
from regard.nn.kernels.recurrent.tiles import (
    arrive,
    back_through,
    block,
    own,
    put,
    put_block,
    resident,
    times,
    wait,
    whole_tile,
)


@triton.jit
def forward_tape(
    PX, Q, TH, TC, TK, S, CA, LOG_SUM, VISIBLE, W, V, FLAGS, T, B, BEFORE, px_row,
    H: tl.constexpr, BB: tl.constexpr, HS: tl.constexpr, K: tl.constexpr, KK: tl.constexpr, BJ: tl.constexpr,
    STAYS: tl.constexpr, N: tl.constexpr, MEMORY: tl.constexpr, GIVEN: tl.constexpr, PARTS: tl.constexpr, FAST: tl.constexpr,
    STAGES: tl.constexpr, UPDATE: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """PX [B, T, N + 1, H]: the input's share in gates and query; the gates are completed in place.
    TH, TC, TK [B, BEFORE + T, H]. S [B, T + 1, H]: contexts, the first given. K: rows of a weight tile; KK: H rounded up."""
    SLICES: tl.constexpr = (H + HS - 1) // HS
    group, slice = tl.program_id(0) // SLICES, tl.program_id(0) % SLICES
    b, u = group * BB + tl.arange(0, BB), slice * HS + tl.arange(0, HS)
    inside = (b < B)[:, None] & (u < H)[None, :]
    flag, met = FLAGS + group * 32, 0
    w0, w1 = resident(W, 0, u, H, K, 1, STAYS, False), resident(W, 1, u, H, K, 1 if N > 1 else 0, STAYS, False)
    w2, w3 = resident(W, 2, u, H, K, 1 if N > 2 else 0, STAYS, False), resident(W, 3, u, H, K, 1 if N > 3 else 0, STAYS, False)
    wq, wk = resident(W, N, u, H, K, 1, STAYS, False), resident(W, N + 1, u, H, K, 1, STAYS, False)
    tape, line = (BEFORE + T) * H, (T + 1) * H
    wide = b.to(tl.int64)
    d = tl.arange(0, KK)
    part, first = slice // BB, slice
    if PARTS == 2:
        first = slice % BB
    dv = (part if PARTS == 2 else 0) * (KK // PARTS) + tl.arange(0, KK // PARTS)
    v = tl.load(V + d, mask=d < H, other=0.0).to(tl.float32)
    most = tl.sum(v, axis=0)
    memory = tl.zeros([BB, HS], tl.float32)
    for t in range(T):
        wait(flag, met, SLICES)
        if t > 0:  # the key of the step before
            source = TH + (BEFORE + t - 1) * H
            tile = whole_tile(source, tape, b, B, W, H, K, STAYS, False, DT)
            key = times(
                tl.zeros([BB, HS], tl.float32), tile, wk, source, tape, W, N + 1, b, u, B, W, H, K, STAYS, False, False, DT,
                PRECISION,
            )  # fmt: skip
            put(TK, wide * tape + (BEFORE + t - 1) * H, u, inside, key)
        source = S + t * H
        tile = whole_tile(source, line, b, B, W, H, K, STAYS, False, DT)
        at = wide * px_row + t * ((N + 1) * H)
        query = own(PX, at + N * H, u, inside)
        query = times(query, tile, wq, source, line, W, N, b, u, B, W, H, K, STAYS, False, False, DT, PRECISION)
        put(Q, wide * (T * H) + t * H, u, inside, query)
        arrive(flag, SLICES)
        met += 1
        p0, p1 = block(PX, at, u, inside, 0, H, N), block(PX, at, u, inside, 1, H, N)
        p2, p3 = block(PX, at, u, inside, 2, H, N), block(PX, at, u, inside, 3, H, N)
        wait(flag, met, SLICES)
        for mine in range(first, BB, SLICES):
            row = (group * BB + mine).to(tl.int64)
            if (part < PARTS or PARTS == 1) and row < B:
                asked = line_of(Q, row * (T * H) + t * H, d, H)
                top, total = -1e30, 0.0
                hidden_sum, memory_sum = tl.zeros([BJ, KK // PARTS], tl.float32), tl.zeros([BJ, KK // PARTS], tl.float32)
                known = BEFORE + t
                if GIVEN and t == 0:
                    known = 0
                for start in tl.range(0, known, BJ, num_stages=STAGES):
                    i = start + tl.arange(0, BJ)
                    there = i < known
                    keys, hiddens = (
                        lines_of(TK, row * tape, H, i, there, d, H),
                        lines_of(TH, row * tape, H, i, there, dv, H),
                    )
                    memories = hiddens
                    if MEMORY:
                        memories = lines_of(TC, row * tape, H, i, there, dv, H)
                    ok = there & counts(VISIBLE, row, i, BEFORE)
                    r = half(keys, asked[None, :], FAST)
                    score = tl.where(ok, most - 2.0 * tl.sum(r * v[None, :], axis=1), -1e30)
                    higher = tl.maximum(top, tl.max(score, axis=0))
                    share = tl.where(ok, tl.exp(score - higher), 0.0)
                    shrink = tl.exp(top - higher)
                    total = total * shrink + tl.sum(share, axis=0)
                    hidden_sum = hidden_sum * shrink + share[:, None] * hiddens
                    if MEMORY:
                        memory_sum = memory_sum * shrink + share[:, None] * memories
                    top = higher
                whole = tl.where(total > 0.0, total, 1.0)
                context = tl.sum(hidden_sum, axis=0) / whole
                if GIVEN and t == 0:
                    context = line_of(S, row * line, dv, H)
                tl.store(S + row * line + (t + 1) * H + dv, context.to(S.dtype.element_ty), mask=dv < H)
                tl.store(
                    CA + row * (T * H) + t * H + dv,
                    (tl.sum(memory_sum, axis=0) / whole).to(CA.dtype.element_ty),
                    mask=dv < H,
                )
                tl.store(LOG_SUM + row * T + t, tl.where(total > 0.0, top + tl.log(whole), 1e30))
        arrive(flag, SLICES)
        met += 1
        wait(flag, met, SLICES)
        source = S + (t + 1) * H
        tile = whole_tile(source, line, b, B, W, H, K, STAYS, False, DT)
        p0 = times(p0, tile, w0, source, line, W, 0, b, u, B, W, H, K, STAYS, False, False, DT, PRECISION)
        if N > 1:
            p1 = times(p1, tile, w1, source, line, W, 1, b, u, B, W, H, K, STAYS, False, False, DT, PRECISION)
            p2 = times(p2, tile, w2, source, line, W, 2, b, u, B, W, H, K, STAYS, False, False, DT, PRECISION)
            p3 = times(p3, tile, w3, source, line, W, 3, b, u, B, W, H, K, STAYS, False, False, DT, PRECISION)
        if MEMORY:
            memory = tl.load(
                CA + (wide * (T * H) + t * H)[:, None] + u[None, :], mask=inside, other=0.0, cache_modifier=".cg"
            ).to(tl.float32)
        hidden, memory = UPDATE(p0, p1, p2, p3, memory, memory, 0.0, 0.0, 0.0)
        put(TH, wide * tape + (BEFORE + t) * H, u, inside, hidden)
        arrive(flag, SLICES)
        met += 1
        if MEMORY:
            put(TC, wide * tape + (BEFORE + t) * H, u, inside, memory)
        put_block(PX, at, u, inside, p0, 0, H, N)
        put_block(PX, at, u, inside, p1, 1, H, N)
        put_block(PX, at, u, inside, p2, 2, H, N)
        put_block(PX, at, u, inside, p3, 3, H, N)


@triton.jit
def backward_tape(
    PX, Q, TH, TC, TK, S, CA, LOG_SUM, VISIBLE, GH, GC, GK, DS, DCA, DQ, DP, DV, MIDDLE, W, V, FLAGS, T, B, BEFORE, px_row,
    H: tl.constexpr, BB: tl.constexpr, HS: tl.constexpr, K: tl.constexpr, KK: tl.constexpr, BJ: tl.constexpr,
    STAYS: tl.constexpr, N: tl.constexpr, MEMORY: tl.constexpr, GIVEN: tl.constexpr, PARTS: tl.constexpr, FAST: tl.constexpr,
    STAGES: tl.constexpr, PULL: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """GH, GC, GK: gradients of all positions, those given from outside at first. DS [B, T + 1, H] likewise of the contexts.
    DCA, DQ [B, T, H], DP [B, T, N, H]: filled. DV [B, 2, H]: of v, a share a row and part."""
    SLICES: tl.constexpr = (H + HS - 1) // HS
    group, slice = tl.program_id(0) // SLICES, tl.program_id(0) % SLICES
    b, u = group * BB + tl.arange(0, BB), slice * HS + tl.arange(0, HS)
    inside = (b < B)[:, None] & (u < H)[None, :]
    flag, met = FLAGS + group * 32, 0
    w0, w1 = resident(W, 0, u, H, K, 1, STAYS, True), resident(W, 1, u, H, K, 1 if N > 1 else 0, STAYS, True)
    w2, w3 = resident(W, 2, u, H, K, 1 if N > 2 else 0, STAYS, True), resident(W, 3, u, H, K, 1 if N > 3 else 0, STAYS, True)
    wq, wk = resident(W, N, u, H, K, 1, STAYS, True), resident(W, N + 1, u, H, K, 1, STAYS, True)
    tape, line, gates = (BEFORE + T) * H, (T + 1) * H, T * N * H
    wide = b.to(tl.int64)
    d = tl.arange(0, KK)
    part, first = slice // BB, slice
    if PARTS == 2:
        first = slice % BB
    v = tl.load(V + d, mask=d < H, other=0.0).to(tl.float32)
    zero = tl.zeros([BB, HS], tl.float32)
    memory, dc = zero, zero
    for step in range(T):
        t = T - 1 - step
        for mine in range(first, BB, SLICES):
            row = (group * BB + mine).to(tl.int64)
            if row < B:
                if (part == 0 or PARTS == 1) and t + 1 < T:
                    row_back(
                        Q, TH, TC, TK, S, CA, LOG_SUM, VISIBLE, DS, DCA, DQ, DV, MIDDLE, v, row, t + 1, T, BEFORE, d, H, KK, BJ,
                        MEMORY, FAST, STAGES,
                    )  # fmt: skip
                if part == 1 and PARTS == 2 and t + 1 < T:  # the other part computes it too: the same number
                    tl.store(MIDDLE + row * T + t + 1, middle_of(S, CA, DS, DCA, row, t + 1, T, d, H, MEMORY))
                tl.debug_barrier()
                if part == 1 or PARTS == 1:
                    column_back(
                        Q, TH, TC, TK, LOG_SUM, DS, DCA, GH, GC, GK, MIDDLE, v, row, BEFORE + t, t + 1, T, BEFORE, d, H, KK, BJ,
                        MEMORY, FAST, STAGES,
                    )  # fmt: skip
        arrive(flag, SLICES)
        met += 1
        at = wide * px_row + t * ((N + 1) * H)
        p0, p1 = block(PX, at, u, inside, 0, H, N), block(PX, at, u, inside, 1, H, N)
        p2, p3 = block(PX, at, u, inside, 2, H, N), block(PX, at, u, inside, 3, H, N)
        if MEMORY:
            memory = own(CA, wide * (T * H) + t * H, u, inside)
        wait(flag, met, SLICES)
        position = wide * tape + (BEFORE + t) * H
        dh = tl.load(GH + position[:, None] + u[None, :], mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
        dh = back_through(dh, wk, GK + (BEFORE + t) * H, tape, W, N + 1, b, u, B, H, K, STAYS, DT, PRECISION)
        if MEMORY:
            dc = tl.load(GC + position[:, None] + u[None, :], mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
        d0, d1, d2, d3, _, to_memory, _, _, _ = PULL(dh, dc, p0, p1, p2, p3, memory, memory, 0.0, 0.0, 0.0)
        put_block(DP, wide * gates + t * (N * H), u, inside, d0 + zero, 0, H, N)
        put_block(DP, wide * gates + t * (N * H), u, inside, d1 + zero, 1, H, N)
        put_block(DP, wide * gates + t * (N * H), u, inside, d2 + zero, 2, H, N)
        put_block(DP, wide * gates + t * (N * H), u, inside, d3 + zero, 3, H, N)
        put(DCA, wide * (T * H) + t * H, u, inside, to_memory + zero)
        arrive(flag, SLICES)
        met += 1
        ds = own(DS, wide * line + (t + 1) * H, u, inside)
        wait(flag, met, SLICES)
        source = DP + t * (N * H)
        ds = back_through(ds, w0, source, gates, W, 0, b, u, B, H, K, STAYS, DT, PRECISION)
        if N > 1:
            ds = back_through(ds, w1, source + H, gates, W, 1, b, u, B, H, K, STAYS, DT, PRECISION)
            ds = back_through(ds, w2, source + 2 * H, gates, W, 2, b, u, B, H, K, STAYS, DT, PRECISION)
            ds = back_through(ds, w3, source + 3 * H, gates, W, 3, b, u, B, H, K, STAYS, DT, PRECISION)
        if t + 1 < T:
            ds = back_through(ds, wq, DQ + (t + 1) * H, T * H, W, N, b, u, B, H, K, STAYS, DT, PRECISION)
        put(DS, wide * line + (t + 1) * H, u, inside, ds)
        arrive(flag, SLICES)
        met += 1
        wait(flag, met, SLICES)
    for mine in range(first, BB, SLICES):
        row = (group * BB + mine).to(tl.int64)
        if (part == 0 or PARTS == 1) and row < B:
            if not GIVEN:
                row_back(
                    Q, TH, TC, TK, S, CA, LOG_SUM, VISIBLE, DS, DCA, DQ, DV, MIDDLE, v, row, 0, T, BEFORE, d, H, KK, BJ,
                    MEMORY, FAST, STAGES,
                )  # fmt: skip
            tl.debug_barrier()
            for position in range(0, BEFORE):
                if tl.load(VISIBLE + row * BEFORE + position) != 0:
                    column_back(
                        Q, TH, TC, TK, LOG_SUM, DS, DCA, GH, GC, GK, MIDDLE, v, row, position, 1 if GIVEN else 0, T, BEFORE, d,
                        H, KK, BJ, MEMORY, FAST, STAGES,
                    )  # fmt: skip
