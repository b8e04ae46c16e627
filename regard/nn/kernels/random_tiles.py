"""Triton: dropout whose mask is drawn where it is used. random.py says what is drawn."""

import triton
import triton.language as tl

DRAWS = tl.constexpr(8)  # draws of 16 bits that one call of Philox makes
ROUNDS = tl.constexpr(7)  # of Philox, the fewest that pass every test of Salmon et al. 2011


@triton.jit
def kept(SEED, call, r, begin, dropped, WIDTH: tl.constexpr, C: tl.constexpr, R: tl.constexpr):
    """Whether elements begin ... begin + C of rows r stay, a function of their places, of the seed and of the call."""
    number = r[:, None] * ((WIDTH + DRAWS - 1) // DRAWS) + begin // DRAWS + tl.arange(0, C // DRAWS)[None, :]
    nothing = number * 0
    w, x, y, z = tl.philox(tl.load(SEED), number, nothing + call, nothing, nothing, ROUNDS)
    words = tl.join(tl.join(w, x), tl.join(y, z))
    halves = tl.join(words & 0xFFFF, words >> 16)
    return tl.reshape(halves, [R, C]).to(tl.int32) >= dropped


@triton.jit
def dropout(
    x, SEED, call, r, begin, dropped, scale, WIDTH: tl.constexpr, C: tl.constexpr, R: tl.constexpr, DROPS: tl.constexpr
):
    """dropout(x), forward and backward."""
    if DROPS:
        return tl.where(kept(SEED, call, r, begin, dropped, WIDTH, C, R), x * scale, 0.0)
    else:
        return x
