"""Triton: the elementwise half of a step, all that a cell does between its products, forward and backward.

The shares of the terms (x, h, t, m of recurrent/cell.py) come as they left their products; PLACES says, for each
pre-activation p_j and each letter, which block of that letter's share it adds (-1: none).
"""

import triton
import triton.language as tl

from regard.nn.kernels.common_tiles import line_of


@triton.jit
def term(S, at, u, UNITS: tl.constexpr, PLACE: tl.constexpr):
    """One block of a share; 0 where a sum has no such term."""
    if PLACE >= 0:
        return line_of(S, at + PLACE * UNITS, u, UNITS)
    else:
        return tl.zeros([u.shape[0]], tl.float32)


@triton.jit
def sums_of(X, H, T, M, row, xs, hs, ts, ms, u, UNITS: tl.constexpr, PLACES: tl.constexpr, J: tl.constexpr):
    """p_J = Σ of its terms"""
    return (
        term(X, row * xs, u, UNITS, PLACES[4 * J]) + term(H, row * hs, u, UNITS, PLACES[4 * J + 1])
        + term(T, row * ts, u, UNITS, PLACES[4 * J + 2]) + term(M, row * ms, u, UNITS, PLACES[4 * J + 3])
    )  # fmt: skip


@triton.jit
def vector(V, u, UNITS: tl.constexpr, NV: tl.constexpr, J: tl.constexpr):
    if J < NV:
        return line_of(V, J * UNITS, u, UNITS)
    else:
        return tl.zeros([u.shape[0]], tl.float32)


@triton.jit
def place(S, at, u, value, UNITS: tl.constexpr, PLACE: tl.constexpr):
    """`value` may be a mere number: a gradient of 0."""
    if PLACE >= 0:
        whole = tl.zeros([u.shape[0]], tl.float32) + value
        tl.store(S + at + PLACE * UNITS + u, whole.to(S.dtype.element_ty), mask=u < UNITS)


@triton.jit
def place_terms(X, H, T, M, row, u, value, xw, hw, tw, mw, UNITS: tl.constexpr, PLACES: tl.constexpr, J: tl.constexpr):
    """The gradient of p_J is that of each of its terms."""
    place(X, row * xw, u, value, UNITS, PLACES[4 * J])
    place(H, row * hw, u, value, UNITS, PLACES[4 * J + 1])
    place(T, row * tw, u, value, UNITS, PLACES[4 * J + 2])
    place(M, row * mw, u, value, UNITS, PLACES[4 * J + 3])


@triton.jit
def step(
    X, H, T, M, S0, S1, V, N0, N1, xs, hs, ts, ms, s0, s1, UNITS: tl.constexpr, BU: tl.constexpr, PLACES: tl.constexpr,
    STATES: tl.constexpr, NV: tl.constexpr, UPDATE: tl.constexpr, RESET: tl.constexpr,
):  # fmt: skip
    """The new state of some units of one row; with RESET, m instead."""
    row, u = tl.program_id(0).to(tl.int64), tl.program_id(1) * BU + tl.arange(0, BU)
    p0 = sums_of(X, H, T, M, row, xs, hs, ts, ms, u, UNITS, PLACES, 0)
    p1 = sums_of(X, H, T, M, row, xs, hs, ts, ms, u, UNITS, PLACES, 1)
    p2 = sums_of(X, H, T, M, row, xs, hs, ts, ms, u, UNITS, PLACES, 2)
    p3 = sums_of(X, H, T, M, row, xs, hs, ts, ms, u, UNITS, PLACES, 3)
    hidden, memory = line_of(S0, row * s0, u, UNITS), line_of(S1, row * s1, u, UNITS)
    if RESET:
        place(N0, row * UNITS, u, UPDATE(p0, p1, p2, p3, hidden, memory), UNITS, 0)
    else:
        v0, v1, v2 = vector(V, u, UNITS, NV, 0), vector(V, u, UNITS, NV, 1), vector(V, u, UNITS, NV, 2)
        new, kept = UPDATE(p0, p1, p2, p3, hidden, memory, v0, v1, v2)
        place(N0, row * UNITS, u, new, UNITS, 0)
        place(N1, row * UNITS, u, kept, UNITS, STATES - 2)


@triton.jit
def step_back(
    X, H, T, M, S0, S1, V, G0, G1, DX, DH, DT, DM, DS0, DS1, DV, xs, hs, ts, ms, s0, s1, g0, g1, xw, hw, tw, mw,
    UNITS: tl.constexpr, BU: tl.constexpr, PLACES: tl.constexpr, INTO: tl.constexpr, STATES: tl.constexpr, NV: tl.constexpr,
    GIVEN: tl.constexpr, PULL: tl.constexpr, RESET: tl.constexpr,
):  # fmt: skip
    """The gradients of all that `step` reads, from those of what it wrote, as far as they are GIVEN."""
    row, u = tl.program_id(0).to(tl.int64), tl.program_id(1) * BU + tl.arange(0, BU)
    p0 = sums_of(X, H, T, M, row, xs, hs, ts, ms, u, UNITS, PLACES, 0)
    p1 = sums_of(X, H, T, M, row, xs, hs, ts, ms, u, UNITS, PLACES, 1)
    p2 = sums_of(X, H, T, M, row, xs, hs, ts, ms, u, UNITS, PLACES, 2)
    p3 = sums_of(X, H, T, M, row, xs, hs, ts, ms, u, UNITS, PLACES, 3)
    hidden, memory = line_of(S0, row * s0, u, UNITS), line_of(S1, row * s1, u, UNITS)
    first, second = term(G0, row * g0, u, UNITS, GIVEN[0]), term(G1, row * g1, u, UNITS, GIVEN[1])
    if RESET:
        d0, d1, d2, d3, e0, e1 = PULL(first, p0, p1, p2, p3, hidden, memory, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    else:
        v0, v1, v2 = vector(V, u, UNITS, NV, 0), vector(V, u, UNITS, NV, 1), vector(V, u, UNITS, NV, 2)
        d0, d1, d2, d3, e0, e1, w0, w1, w2 = PULL(first, second, p0, p1, p2, p3, hidden, memory, v0, v1, v2)
        place(DV, row * (NV * UNITS), u, w0, UNITS, 0 if NV > 0 else -1)
        place(DV, row * (NV * UNITS), u, w1, UNITS, 1 if NV > 1 else -1)
        place(DV, row * (NV * UNITS), u, w2, UNITS, 2 if NV > 2 else -1)
    place_terms(DX, DH, DT, DM, row, u, d0, xw, hw, tw, mw, UNITS, INTO, 0)
    place_terms(DX, DH, DT, DM, row, u, d1, xw, hw, tw, mw, UNITS, INTO, 1)
    place_terms(DX, DH, DT, DM, row, u, d2, xw, hw, tw, mw, UNITS, INTO, 2)
    place_terms(DX, DH, DT, DM, row, u, d3, xw, hw, tw, mw, UNITS, INTO, 3)
    place(DS0, row * UNITS, u, e0, UNITS, 0)
    place(DS1, row * UNITS, u, e1, UNITS, STATES - 2)
