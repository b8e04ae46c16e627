"""Triton: a whole scan in one launch. Each program keeps its slice of the weights and meets its group once or twice a step.

A group of programs shares some rows of the batch; each of them owns some units of the state. A step is: multiply the whole
state by the own slice of the weights, update the own units, write them, meet. Kinds of a block's product: 1 with h, 2 with
tanh(h), 3 with m, 0 none. Nothing is added up by atomics: results are the same at every run.
"""

import triton
import triton.language as tl

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
def from_state(
    acc, tile, squashed, weight, S, stride, Z, W, row, b, u, B, MASK, H: tl.constexpr, K: tl.constexpr, STAYS: tl.constexpr,
    MASKED: tl.constexpr, KIND: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """acc + U h or U tanh(h), where the block has it."""
    if KIND == 1:
        return times(acc, tile, weight, S, stride, W, row, b, u, B, MASK, H, K, STAYS, False, MASKED, DT, PRECISION)
    elif KIND == 2:
        return times(acc, squashed, weight, Z, H, W, row, b, u, B, MASK, H, K, STAYS, False, MASKED, DT, PRECISION)
    else:
        return acc


@triton.jit
def from_reset(
    acc, weight, M, W, row, b, u, B, MASK, H: tl.constexpr, K: tl.constexpr, STAYS: tl.constexpr, MASKED: tl.constexpr,
    DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """acc + V m."""
    tile = whole_tile(M, H, b, B, MASK, H, K, STAYS, MASKED, DT)
    return times(acc, tile, weight, M, H, W, row, b, u, B, MASK, H, K, STAYS, False, MASKED, DT, PRECISION)


@triton.jit
def back_to_state(
    acc, weight, S, stride, W, row, b, u, B, H: tl.constexpr, K: tl.constexpr, STAYS: tl.constexpr, KIND: tl.constexpr,
    WANTED: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """acc + Uᵀ g for the blocks of the wanted kind."""
    if KIND == WANTED:
        return back_through(acc, weight, S, stride, W, row, b, u, B, H, K, STAYS, DT, PRECISION)
    else:
        return acc


@triton.jit
def vector(V, i: tl.constexpr, u, H: tl.constexpr, NV: tl.constexpr):
    if i < NV:
        return tl.load(V + i * H + u, mask=u < H, other=0.0).to(tl.float32)[None, :]
    else:
        return 0.0


@triton.jit
def bias_of(BIAS, row, u, H: tl.constexpr, KIND: tl.constexpr, BIASED: tl.constexpr):
    if BIASED and KIND == 1:
        return tl.load(BIAS + row * H + u, mask=u < H, other=0.0).to(tl.float32)[None, :]
    else:
        return 0.0


@triton.jit
def forward_scan(
    P, Y, C, M, Z, W, BIAS, V, MASK, LENGTHS, FLAGS, T, B,
    H: tl.constexpr, BB: tl.constexpr, HS: tl.constexpr, K: tl.constexpr, STAYS: tl.constexpr, N: tl.constexpr,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr, K3: tl.constexpr,
    R0: tl.constexpr, R1: tl.constexpr, R2: tl.constexpr, R3: tl.constexpr, LAST: tl.constexpr, SQUASHED: tl.constexpr,
    MEMORY: tl.constexpr, MASKED: tl.constexpr, RAGGED: tl.constexpr, BIASED: tl.constexpr, NV: tl.constexpr,
    UPDATE: tl.constexpr, RESET: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """P [B, T, N, H]: the input's share, completed in place. Y, C [B, T + 1, H]: the states, from the first on.
    M [B, H] and Z [2, B, H] hand m and tanh(h) over; whoever writes one of the two Z, the other is being read.
    LAST: the block whose product is with m, or -1."""
    SLICES: tl.constexpr = (H + HS - 1) // HS
    group = tl.program_id(0) // SLICES
    b, u = group * BB + tl.arange(0, BB), (tl.program_id(0) % SLICES) * HS + tl.arange(0, HS)
    inside = (b < B)[:, None] & (u < H)[None, :]
    flag, met = FLAGS + group * 32, 0
    w0, w1 = resident(W, R0, u, H, K, K0, STAYS, False), resident(W, R1, u, H, K, K1, STAYS, False)
    w2, w3 = resident(W, R2, u, H, K, K2, STAYS, False), resident(W, R3, u, H, K, K3, STAYS, False)
    b0, b1 = bias_of(BIAS, R0, u, H, K0, BIASED), bias_of(BIAS, R1, u, H, K1, BIASED)
    b2, b3 = bias_of(BIAS, R2, u, H, K2, BIASED), bias_of(BIAS, R3, u, H, K3, BIASED)
    v0, v1, v2 = vector(V, 0, u, H, NV), vector(V, 1, u, H, NV), vector(V, 2, u, H, NV)
    rows, line = b.to(tl.int64) * ((T + 1) * H), (T + 1) * H
    hidden, memory = own(Y, rows, u, inside), tl.zeros([BB, HS], tl.float32)
    if MEMORY:
        memory = own(C, rows, u, inside)
    length = tl.zeros([BB], tl.int32) + T
    if RAGGED:
        length = tl.load(LENGTHS + b, mask=b < B, other=0)
    at = b.to(tl.int64) * (T * N * H)
    p0, p1 = block(P, at, u, inside, 0, H, N), block(P, at, u, inside, 1, H, N)
    p2, p3 = block(P, at, u, inside, 2, H, N), block(P, at, u, inside, 3, H, N)
    for t in range(T):
        wait(flag, met, SLICES)
        S = Y + t * H
        now, then = Z + (t % 2) * (B * H), Z + ((t + 1) % 2) * (B * H)
        tile = whole_tile(S, line, b, B, MASK, H, K, STAYS, MASKED, DT)
        squashed = whole_tile(now, H, b, B, MASK, H, K, STAYS and SQUASHED, MASKED, DT)
        p0 = from_state(p0 + b0, tile, squashed, w0, S, line, now, W, R0, b, u, B, MASK, H, K, STAYS, MASKED, K0, DT, PRECISION)
        if LAST >= 0:
            put(M, b * H, u, inside, RESET(p0, p1, p2, p3, hidden, memory))
            arrive(flag, SLICES)
            met += 1
        p1 = from_state(p1 + b1, tile, squashed, w1, S, line, now, W, R1, b, u, B, MASK, H, K, STAYS, MASKED, K1, DT, PRECISION)
        p2 = from_state(p2 + b2, tile, squashed, w2, S, line, now, W, R2, b, u, B, MASK, H, K, STAYS, MASKED, K2, DT, PRECISION)
        p3 = from_state(p3 + b3, tile, squashed, w3, S, line, now, W, R3, b, u, B, MASK, H, K, STAYS, MASKED, K3, DT, PRECISION)
        if LAST >= 0:
            wait(flag, met, SLICES)
            if LAST == 1:
                p1 = from_reset(p1, w1, M, W, R1, b, u, B, MASK, H, K, STAYS, MASKED, DT, PRECISION)
            elif LAST == 2:
                p2 = from_reset(p2, w2, M, W, R2, b, u, B, MASK, H, K, STAYS, MASKED, DT, PRECISION)
            else:
                p3 = from_reset(p3, w3, M, W, R3, b, u, B, MASK, H, K, STAYS, MASKED, DT, PRECISION)
        new_hidden, new_memory = UPDATE(p0, p1, p2, p3, hidden, memory, v0, v1, v2)
        if RAGGED:
            active = (t < length)[:, None]
            new_hidden, new_memory = tl.where(active, new_hidden, hidden), tl.where(active, new_memory, memory)
        hidden, memory = new_hidden, new_memory
        put(Y, rows + (t + 1) * H, u, inside, hidden)
        if SQUASHED:
            put(then, b * H, u, inside, 2.0 * tl.sigmoid(2.0 * hidden) - 1.0)
        arrive(flag, SLICES)
        met += 1
        if MEMORY:
            put(C, rows + (t + 1) * H, u, inside, memory)
        put_block(P, at, u, inside, p0, 0, H, N)
        put_block(P, at, u, inside, p1, 1, H, N)
        put_block(P, at, u, inside, p2, 2, H, N)
        put_block(P, at, u, inside, p3, 3, H, N)
        at += N * H
        here = inside & (t + 1 < T)
        p0, p1 = block(P, at, u, here, 0, H, N), block(P, at, u, here, 1, H, N)
        p2, p3 = block(P, at, u, here, 2, H, N), block(P, at, u, here, 3, H, N)


@triton.jit
def backward_scan(
    P, Y, C, DY, DP, DH, DC, DV, W, V, MASK, LENGTHS, FLAGS, T, B, dy_row, dy_time,
    H: tl.constexpr, BB: tl.constexpr, HS: tl.constexpr, K: tl.constexpr, STAYS: tl.constexpr, N: tl.constexpr,
    K0: tl.constexpr, K1: tl.constexpr, K2: tl.constexpr, K3: tl.constexpr,
    R0: tl.constexpr, R1: tl.constexpr, R2: tl.constexpr, R3: tl.constexpr, LAST: tl.constexpr, SQUASHED: tl.constexpr,
    MEMORY: tl.constexpr, MASKED: tl.constexpr, RAGGED: tl.constexpr, NV: tl.constexpr,
    PULL: tl.constexpr, PULL_RESET: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """DY: gradient of the outputs. DP [B, T, N, H]: gradient of the pre-activations, filled. DH, DC [B, H]: of the last state,
    replaced by that of the first. DV [groups, 3, H]: of the vectors, a share a group."""
    SLICES: tl.constexpr = (H + HS - 1) // HS
    group = tl.program_id(0) // SLICES
    b, u = group * BB + tl.arange(0, BB), (tl.program_id(0) % SLICES) * HS + tl.arange(0, HS)
    inside = (b < B)[:, None] & (u < H)[None, :]
    flag, met = FLAGS + group * 32, 0
    w0, w1 = resident(W, R0, u, H, K, K0, STAYS, True), resident(W, R1, u, H, K, K1, STAYS, True)
    w2, w3 = resident(W, R2, u, H, K, K2, STAYS, True), resident(W, R3, u, H, K, K3, STAYS, True)
    v0, v1, v2 = vector(V, 0, u, H, NV), vector(V, 1, u, H, NV), vector(V, 2, u, H, NV)
    zero = tl.zeros([BB, HS], tl.float32)
    e0, e1, e2 = zero, zero, zero
    dh, dc = own(DH, b * H, u, inside), zero
    memory, mask = zero, zero + 1.0
    if MASKED:
        mask = own(MASK, b * H, u, inside)
    length = tl.zeros([BB], tl.int32) + T
    if RAGGED:
        length = tl.load(LENGTHS + b, mask=b < B, other=0)
    line = T * N * H
    rows, at = b.to(tl.int64) * ((T + 1) * H) + (T - 1) * H, b.to(tl.int64) * line + (T - 1) * N * H
    dy_at = b.to(tl.int64) * dy_row + (T - 1) * dy_time
    p0, p1 = block(P, at, u, inside, 0, H, N), block(P, at, u, inside, 1, H, N)
    p2, p3 = block(P, at, u, inside, 2, H, N), block(P, at, u, inside, 3, H, N)
    hidden, dy = own(Y, rows, u, inside), own(DY, dy_at, u, inside)
    if MEMORY:
        memory, dc = own(C, rows, u, inside), own(DC, b * H, u, inside)
    for i in range(T):
        t = T - 1 - i
        dh += dy
        gh, gc, active = dh, dc, (t < length)[:, None]
        if RAGGED:
            gh, gc = tl.where(active, dh, 0.0), tl.where(active, dc, 0.0)
        d0, d1, d2, d3, to_hidden, to_memory, f0, f1, f2 = PULL(gh, gc, p0, p1, p2, p3, hidden, memory, v0, v1, v2)
        d0, d1, d2, d3, to_hidden, to_memory = d0 + zero, d1 + zero, d2 + zero, d3 + zero, to_hidden + zero, to_memory + zero
        e0, e1, e2 = e0 + f0, e1 + f1, e2 + f2
        S = DP + t * (N * H)
        if LAST >= 0:
            dm = zero
            if LAST == 1:
                put_block(DP, at, u, inside, d1, 1, H, N)
            elif LAST == 2:
                put_block(DP, at, u, inside, d2, 2, H, N)
            else:
                put_block(DP, at, u, inside, d3, 3, H, N)
            arrive(flag, SLICES)
            met += 1
            wait(flag, met, SLICES)
            if LAST == 1:
                dm = back_through(zero, w1, S + H, line, W, R1, b, u, B, H, K, STAYS, DT, PRECISION)
            elif LAST == 2:
                dm = back_through(zero, w2, S + 2 * H, line, W, R2, b, u, B, H, K, STAYS, DT, PRECISION)
            else:
                dm = back_through(zero, w3, S + 3 * H, line, W, R3, b, u, B, H, K, STAYS, DT, PRECISION)
            d0, d1, d2, d3, to_hidden, to_memory = PULL_RESET(
                dm * mask, p0, p1, p2, p3, hidden, memory, d0, d1, d2, d3, to_hidden, to_memory
            )
        put_block(DP, at, u, inside, d0, 0, H, N)
        if LAST != 1:
            put_block(DP, at, u, inside, d1, 1, H, N)
        if LAST != 2:
            put_block(DP, at, u, inside, d2, 2, H, N)
        if LAST != 3:
            put_block(DP, at, u, inside, d3, 3, H, N)
        arrive(flag, SLICES)
        met += 1
        derivative = zero
        if SQUASHED:
            squashed = 2.0 * tl.sigmoid(2.0 * hidden) - 1.0
            derivative = 1.0 - squashed * squashed
        rows, at, dy_at, here = rows - H, at - N * H, dy_at - dy_time, inside & (t > 0)
        p0, p1 = block(P, at, u, here, 0, H, N), block(P, at, u, here, 1, H, N)
        p2, p3 = block(P, at, u, here, 2, H, N), block(P, at, u, here, 3, H, N)
        hidden, dy = own(Y, rows, u, here), own(DY, dy_at, u, here)
        if MEMORY:
            memory = own(C, rows, u, here)
        wait(flag, met, SLICES)
        back = back_to_state(zero, w0, S, line, W, R0, b, u, B, H, K, STAYS, K0, 1, DT, PRECISION)
        back = back_to_state(back, w1, S + H, line, W, R1, b, u, B, H, K, STAYS, K1, 1, DT, PRECISION)
        back = back_to_state(back, w2, S + 2 * H, line, W, R2, b, u, B, H, K, STAYS, K2, 1, DT, PRECISION)
        back = back_to_state(back, w3, S + 3 * H, line, W, R3, b, u, B, H, K, STAYS, K3, 1, DT, PRECISION)
        if SQUASHED:
            through = back_to_state(zero, w1, S + H, line, W, R1, b, u, B, H, K, STAYS, K1, 2, DT, PRECISION)
            through = back_to_state(through, w2, S + 2 * H, line, W, R2, b, u, B, H, K, STAYS, K2, 2, DT, PRECISION)
            back += through * derivative
        back = to_hidden + back * mask
        if RAGGED:
            dh, dc = tl.where(active, back, dh), tl.where(active, to_memory, dc)
        else:
            dh, dc = back, to_memory
    put(DH, b * H, u, inside, dh)
    if MEMORY:
        put(DC, b * H, u, inside, dc)
    if NV > 0:
        share = DV + group * (3 * H) + u
        tl.store(share, tl.sum(tl.where(inside, e0, 0.0), axis=0), mask=u < H)
        tl.store(share + H, tl.sum(tl.where(inside, e1, 0.0), axis=0), mask=u < H)
        tl.store(share + 2 * H, tl.sum(tl.where(inside, e2, 0.0), axis=0), mask=u < H)
