"""Triton: what kernels of several rooms are made of."""

import triton
import triton.language as tl


@triton.jit
def line_of(S, at, d, H: tl.constexpr):
    """One position of one row, written by other programs a moment ago."""
    return tl.load(S + at + d, mask=d < H, other=0.0, cache_modifier=".cg").to(tl.float32)


@triton.jit
def lines_of(S, at, stride, i, ok, d, H: tl.constexpr):
    """Positions i of one row."""
    inside = ok[:, None] & (d < H)[None, :]
    return tl.load(S + at + i[:, None] * stride + d[None, :], mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)


@triton.jit
def reciprocal(x, FAST: tl.constexpr):
    """1 / x, by the one instruction that a GPU has for it (its last bit may be off); x may be infinite."""
    if FAST:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return 1.0 / x


@triton.jit
def half(left, right, FAST: tl.constexpr):
    """r of a query and a key, both multiplied by 2 / ln 2 on the way."""
    return reciprocal(1.0 + tl.exp2(left * 2.8853900817779268 + right * 2.8853900817779268), FAST)
