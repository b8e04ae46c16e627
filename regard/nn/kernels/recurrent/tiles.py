"""Triton: what the persistent kernels are made of - meetings, tiles of weights and of what they multiply, own units."""

import triton
import triton.language as tl


@triton.jit
def arrive(flag, SLICES: tl.constexpr):
    tl.debug_barrier()
    if SLICES > 1:
        tl.atomic_add(flag, 1, sem="release")


@triton.jit
def wait(flag, meetings, SLICES: tl.constexpr):
    """Until every slice has come to this meeting."""
    if SLICES > 1:
        there = tl.atomic_add(flag, 0, sem="acquire")
        while there < meetings * SLICES:
            there = tl.atomic_add(flag, 0, sem="acquire")
        tl.debug_barrier()


@triton.jit
def weight_tile(W, row, k, u, H: tl.constexpr, BACK: tl.constexpr):
    """[k, u] of block `row`: the weight from k to u going forward, from u to k going back."""
    inside = (k < H)[:, None] & (u < H)[None, :]
    if BACK:
        return tl.load(W + (row * H + k)[:, None] * H + u[None, :], mask=inside, other=0.0)
    else:
        return tl.load(W + (row * H + u)[None, :] * H + k[:, None], mask=inside, other=0.0)


@triton.jit
def resident(W, row, u, H: tl.constexpr, K: tl.constexpr, KIND: tl.constexpr, STAYS: tl.constexpr, BACK: tl.constexpr):
    """A block's weights, loaded once, where they stay."""
    if STAYS and KIND > 0:
        return weight_tile(W, row, tl.arange(0, K), u, H, BACK)
    else:
        return 0.0


@triton.jit
def source_tile(S, stride, b, k, B, MASK, H: tl.constexpr, MASKED: tl.constexpr, DT: tl.constexpr):
    """What enters a product: rows b, elements k, written by other programs a moment ago (so not from the L1 cache)."""
    inside = (b < B)[:, None] & (k < H)[None, :]
    tile = tl.load(S + b.to(tl.int64)[:, None] * stride + k[None, :], mask=inside, other=0.0, cache_modifier=".cg")
    if MASKED:
        mask = tl.load(MASK + b[:, None] * H + k[None, :], mask=inside, other=0.0)
        tile = tile.to(tl.float32) * mask.to(tl.float32)
    return tile.to(DT)


@triton.jit
def times(
    acc, tile, weight, S, stride, W, row, b, u, B, MASK, H: tl.constexpr, K: tl.constexpr, STAYS: tl.constexpr,
    BACK: tl.constexpr, MASKED: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """acc + source x weights of one block. Weights that do not stay are read again, K rows at a time, the source with them."""
    if STAYS:
        return tl.dot(tile, weight, acc, input_precision=PRECISION)
    else:
        for start in range(0, H, K):
            k = start + tl.arange(0, K)
            strip = source_tile(S, stride, b, k, B, MASK, H, MASKED, DT)
            acc = tl.dot(strip, weight_tile(W, row, k, u, H, BACK), acc, input_precision=PRECISION)
        return acc


@triton.jit
def whole_tile(
    S, stride, b, B, MASK, H: tl.constexpr, K: tl.constexpr, WANTED: tl.constexpr, MASKED: tl.constexpr, DT: tl.constexpr
):
    """The source of a product with weights that stay, read once for all blocks."""
    if WANTED:
        return source_tile(S, stride, b, tl.arange(0, K), B, MASK, H, MASKED, DT)
    else:
        return 0.0


@triton.jit
def back_through(
    acc, weight, S, stride, W, row, b, u, B, H: tl.constexpr, K: tl.constexpr, STAYS: tl.constexpr, DT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """acc + Uᵀ g."""
    tile = whole_tile(S, stride, b, B, S, H, K, STAYS, False, DT)
    return times(acc, tile, weight, S, stride, W, row, b, u, B, S, H, K, STAYS, True, False, DT, PRECISION)


@triton.jit
def own(S, at, u, inside):
    """The own units at rows `at`."""
    return tl.load(S + at[:, None] + u[None, :], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def block(P, at, u, inside, j: tl.constexpr, H: tl.constexpr, N: tl.constexpr):
    """Pre-activation j of the own units; 0 where a cell has no such block."""
    if j < N:
        return own(P, at + j * H, u, inside)
    else:
        return tl.zeros([at.shape[0], u.shape[0]], tl.float32)


@triton.jit
def put(S, at, u, inside, value):
    tl.store(S + at[:, None] + u[None, :], value.to(S.dtype.element_ty), mask=inside)


@triton.jit
def put_block(P, at, u, inside, value, j: tl.constexpr, H: tl.constexpr, N: tl.constexpr):
    if j < N:
        put(P, at + j * H, u, inside, value)
