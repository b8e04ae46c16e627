"""Triton: the best words of each row, and what greedy search makes of them. words.py says what is computed."""

import triton
import triton.language as tl

from regard.nn.kernels.steps.attend_tiles import come_early


@triton.jit
def rank_block(
    LOGITS, MISSING, VALUES, WORDS, TOPS, SUMS, count, blocks, vocabulary, end, LEAST: tl.constexpr, B: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """Of one row's B words: the largest score, Σ exp(score - it), and the best `count` that may come."""
    come_early(EARLY)
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    v, at = block * B + tl.arange(0, B), row * blocks + block
    x = tl.load(LOGITS + row * vocabulary + v, mask=v < vocabulary, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    tl.store(TOPS + at, top)
    tl.store(SUMS + at, tl.sum(tl.exp(x - tl.maximum(top, -1e30)), axis=0))
    if LEAST:
        x = tl.where((v == end) & (tl.load(MISSING + row) > 0), -float("inf"), x)
    for k in range(0, count):
        best, which = tl.max(x, axis=0, return_indices=True)
        tl.store(VALUES + at * count + k, best)
        tl.store(WORDS + at * count + k, tl.minimum(block * B + which, vocabulary - 1))  # where there is no number
        x = tl.where(v == block * B + which, -float("inf"), x)


@triton.jit
def log_sums(TOPS, SUMS, rows, ok, blocks, N: tl.constexpr):
    """log Σ exp(score) of some rows; what is no number stays so."""
    n = tl.arange(0, N)
    inside = ok[:, None] & (n < blocks)[None, :]
    tops = tl.load(TOPS + rows[:, None] * blocks + n[None, :], mask=inside, other=-1e30)
    sums = tl.load(SUMS + rows[:, None] * blocks + n[None, :], mask=inside, other=0.0)
    top = tl.maximum(tl.max(tops, axis=1), -1e30)
    return top + tl.log(tl.sum(sums * tl.exp(tl.maximum(tops, -1e30) - top[:, None]), axis=1))


@triton.jit
def rank_beam(
    VALUES, WORDS, TOPS, SUMS, TOTALS, MISSING, LEFT, OUT, CHOSEN, count, blocks, vocabulary, WIDTH: tl.constexpr,
    LEAST: tl.constexpr, W: tl.constexpr, N: tl.constexpr, Z: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The best `count` of all hypotheses of a sentence by total + log p; what is no number comes first."""
    come_early(EARLY)
    w, z, each = tl.arange(0, W), tl.arange(0, Z), blocks * count
    rows, ok = tl.program_id(0).to(tl.int64) * WIDTH + w, w < WIDTH
    gain = tl.load(TOTALS + rows, mask=ok, other=0.0) - log_sums(TOPS, SUMS, rows, ok, blocks, N)
    if LEAST:
        dead = tl.load(MISSING + rows, mask=ok, other=0) > tl.load(LEFT + rows, mask=ok, other=0)
        gain = tl.where(dead, -float("inf"), gain)
    inside = ok[:, None] & (z < each)[None, :]
    x = tl.load(VALUES + rows[:, None] * each + z[None, :], mask=inside, other=-float("inf")) + gain[:, None]
    x = tl.where(inside, tl.where(x != x, float("inf"), x), -float("inf"))
    x, place = tl.reshape(x, [W * Z]), tl.arange(0, W * Z)
    for k in range(0, count):
        best, which = tl.max(x, axis=0, return_indices=True)
        parent = which // Z
        word = tl.load(WORDS + (tl.program_id(0).to(tl.int64) * WIDTH + parent) * each + which % Z)
        tl.store(OUT + tl.program_id(0) * count + k, tl.where(best == float("inf"), float("nan"), best))
        tl.store(CHOSEN + tl.program_id(0) * count + k, parent.to(tl.int64) * vocabulary + word)
        x = tl.where(place == which, -float("inf"), x)


@triton.jit
def step_greedily(
    VALUES, BEST, TOPS, SUMS, NEXT, TOKENS, LENGTHS, TOTALS, OPEN, LEFT, MISSING, PLACES, blocks, room, end,
    LEAST: tl.constexpr, N: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One word more of one row, written where it is kept."""
    come_early(EARLY)
    row, n = tl.program_id(0).to(tl.int64), tl.arange(0, N)
    only, all = row + tl.arange(0, 1), tl.full([1], True, tl.int1)
    less = tl.sum(log_sums(TOPS, SUMS, only, all, blocks, N), axis=0)
    x = tl.load(VALUES + row * blocks + n, mask=n < blocks, other=-float("inf"))
    which = tl.minimum(tl.argmax(x, axis=0), blocks - 1)
    word, best = tl.load(BEST + row * blocks + which).to(tl.int64), tl.max(x, axis=0) - less
    left, place, is_open = tl.load(LEFT + row), tl.load(PLACES + row), tl.load(OPEN + row) != 0
    if LEAST:
        missing = tl.load(MISSING + row)
        best, word = tl.where(missing > left, -float("inf"), best), tl.where(missing > left, 0, word)
        tl.store(MISSING + row, missing - 1)
    tl.store(TOTALS + row, tl.load(TOTALS + row) + tl.where(is_open, best, 0.0))
    tl.store(TOKENS + row * (room + 1) + place, tl.where(is_open, word, end))
    tl.store(LENGTHS + row, tl.load(LENGTHS + row) + is_open.to(tl.int64))
    tl.store(OPEN + row, (is_open & (word != end) & (left > 1)).to(tl.uint8))
    tl.store(NEXT + row, word)
    tl.store(LEFT + row, left - 1)
    tl.store(PLACES + row, tl.minimum(place + 1, room))


@triton.jit
def enter(
    WORDS, EMBED, TABLE, PLACES, OUT, scale, places, SIZE: tl.constexpr, C: tl.constexpr, ADDS: tl.constexpr,
    EARLY: tl.constexpr,
):  # fmt: skip
    """scale · E[word] + p[place]"""
    come_early(EARLY)
    row, c = tl.program_id(0).to(tl.int64), tl.arange(0, C)
    ok = c < SIZE
    x = tl.load(EMBED + tl.load(WORDS + row) * SIZE + c, mask=ok, other=0.0).to(tl.float32) * scale
    if ADDS:
        place = tl.minimum(tl.load(PLACES + row), places - 1)
        x = x.to(OUT.dtype.element_ty).to(tl.float32) + tl.load(TABLE + place * SIZE + c, mask=ok, other=0.0).to(tl.float32)
    tl.store(OUT + row * SIZE + c, x.to(OUT.dtype.element_ty), mask=ok)
