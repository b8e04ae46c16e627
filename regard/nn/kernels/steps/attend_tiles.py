"""Triton: one query a row attends to its own past, or to a sentence. attend.py says what is computed.

A program has one head of one row; sums of exponentials are kept as keys go by (Milakov & Gimelshein 2018).
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def come_early(EARLY: tl.constexpr):
    """A program that was launched before its predecessors had ended reads what they write from here on; and so do those after
    it, which may come now."""
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def more_keys(q, keys, values, there, top, total, context):
    """The largest score, Σ exp(score - it) and Σ exp(score - it) v, with some keys more."""
    scores = tl.where(there, tl.sum(keys.to(tl.float32) * q[None, :], axis=1), -float("inf"))
    highest = tl.maximum(top, tl.max(scores, axis=0))
    weights, less = tl.exp(scores - highest), tl.exp(top - highest)
    context = context * less + tl.sum(weights[:, None] * values.to(tl.float32), axis=0)
    return highest, total * less + tl.sum(weights, axis=0), context


@triton.jit
def attend_to_past(
    QKV, CACHE, ANCESTORS, PLACES, OUT, scale, stride, room, HEADS: tl.constexpr, SIZE: tl.constexpr, C: tl.constexpr,
    B: tl.constexpr, WIDTH: tl.constexpr, MARKS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """This place's key and value are written behind the earlier ones. With WIDTH > 1, place p of a row lies in the cache of its
    sentence's hypothesis ANCESTORS[row, p]; MARKS: it is this launch that notes who writes this place."""
    come_early(EARLY)
    row, head, c = tl.program_id(0), tl.program_id(1), tl.arange(0, C)
    ok, wide = c < SIZE, HEADS * SIZE
    asked = QKV + row.to(tl.int64) * (3 * wide) + head * SIZE + c
    q = tl.load(asked, mask=ok, other=0.0).to(tl.float32) * scale
    key, value = tl.load(asked + wide, mask=ok, other=0.0), tl.load(asked + 2 * wide, mask=ok, other=0.0)
    place = tl.minimum(tl.load(PLACES + row).to(tl.int32), room - 1)
    own = CACHE + row.to(tl.int64) * stride + head * SIZE + c
    tl.store(own + place * wide, key, mask=ok)
    tl.store(own + (room + place) * wide, value, mask=ok)
    if MARKS:
        tl.store(ANCESTORS + row.to(tl.int64) * room + place, row % WIDTH, mask=head == 0)
    top, total, context = tl.sum(q * key.to(tl.float32), axis=0), 1.0, value.to(tl.float32)
    for first in range(0, place, B):
        p = first + tl.arange(0, B)
        there = p < place
        slot = row + p * 0
        if WIDTH > 1:
            slot = row - row % WIDTH + tl.load(ANCESTORS + row.to(tl.int64) * room + p, mask=there, other=0)
        at = CACHE + slot.to(tl.int64)[:, None] * stride + (p[:, None] * wide + head * SIZE + c[None, :])
        inside = there[:, None] & ok[None, :]
        keys, values = tl.load(at, mask=inside, other=0.0), tl.load(at + room * wide, mask=inside, other=0.0)
        top, total, context = more_keys(q, keys, values, there, top, total, context)
    tl.store(OUT + row.to(tl.int64) * wide + head * SIZE + c, (context / total).to(OUT.dtype.element_ty), mask=ok)


@triton.jit
def attend_to_sentence(
    Q, KEYS, VALUES, COUNTS, OUT, scale, source, kb, kh, ks, vb, vh, vs, width, HEADS: tl.constexpr, SIZE: tl.constexpr,
    C: tl.constexpr, B: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """`width` rows read one sentence. Where nothing is to be seen, 0 is read."""
    come_early(EARLY)
    row, head, c = tl.program_id(0), tl.program_id(1), tl.arange(0, C)
    ok, sentence = c < SIZE, (row // width).to(tl.int64)
    at = row.to(tl.int64) * (HEADS * SIZE) + head * SIZE + c
    q = tl.load(Q + at, mask=ok, other=0.0).to(tl.float32) * scale
    top, total, context = -1e30, 0.0, tl.zeros([C], tl.float32)
    for first in range(0, source, B):
        p = first + tl.arange(0, B)
        there = tl.load(COUNTS + sentence * source + p, mask=p < source, other=0) != 0
        inside = there[:, None] & ok[None, :]
        keys = tl.load(KEYS + sentence * kb + head * kh + p[:, None] * ks + c[None, :], mask=inside, other=0.0)
        values = tl.load(VALUES + sentence * vb + head * vh + p[:, None] * vs + c[None, :], mask=inside, other=0.0)
        top, total, context = more_keys(q, keys, values, there, top, total, context)
    tl.store(OUT + at, (context / tl.where(total > 0.0, total, 1.0)).to(OUT.dtype.element_ty), mask=ok)
