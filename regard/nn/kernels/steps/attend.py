"""Attention of a decoding step: one query a row over its own past, whose caches lie still, or over the sentence it reads.

α_j = softmax_j(scale q · k_j), c = Σ_j α_j v_j. A past is read as far as its row has come, however much room there is. What a
beam re-orders is a table of ancestors: in which of its sentence's rows each place was written.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.nn.kernels.machine import DTYPES, here, power_of_two, with_whole_rows
from regard.nn.kernels.steps.early import early

Joint = Float[Tensor, "rows 3 heads size"]  # query, key and value of each row
Past = Float[Tensor, "rows 2 room context"]  # keys and values by place
Ancestors = Int[Tensor, "rows room"]  # counted within a sentence
Context = Float[Tensor, "rows context"]
WIDEST = 256  # elements of a head
MANY = 2048  # programs, from which on fewer warps each are more
BLOCK = 32  # keys that a program holds at a time


def applies(like: Tensor, size: int) -> bool:
    """Whether this machine can, with heads of this size."""
    return here(like) and like.dtype in DTYPES and size <= WIDEST


def attend_to_past(
    joint: Joint, past: Past, places: Int[Tensor, "rows"], ancestors: Ancestors | None = None, *, scale: float, width: int = 1,
    marks: bool = False,
) -> Context:  # fmt: skip
    """Also writes: this place's key and value into the past and, where it `marks`, its row into the table."""
    rows, _, heads, size = joint.shape
    if not applies(joint, size):
        return plain_attend_to_past(joint, past, places, ancestors, scale=scale, width=width, marks=marks)
    from regard.nn.kernels.steps.attend_tiles import attend_to_past

    out = joint.new_empty(rows, heads * size)
    table = places if ancestors is None else ancestors
    attend_to_past[(rows, heads)](
        joint, past, table, places, out, scale, past.stride(0), past.shape[2], HEADS=heads, SIZE=size, C=power_of_two(size),
        B=BLOCK, WIDTH=1 if ancestors is None else width, MARKS=marks and ancestors is not None, **warps(rows, heads),
    )  # fmt: skip
    return out


def plain_attend_to_past(
    joint: Joint, past: Past, places: Int[Tensor, "rows"], ancestors: Ancestors | None = None, *, scale: float, width: int = 1,
    marks: bool = False,
) -> Context:  # fmt: skip
    """The specification."""
    (rows, _, heads, size), room = joint.shape, past.shape[2]
    every, place = torch.arange(rows, device=past.device), places.clamp(max=room - 1)
    past[every, :, place] = joint[:, 1:].flatten(2)
    if marks and ancestors is not None:
        ancestors[every, place] = (every % width).to(ancestors.dtype)
    slots = every[:, None].expand(-1, room)
    if ancestors is not None:
        slots = slots - slots % width + ancestors.where(torch.arange(room, device=past.device) < place[:, None], slots % width)
    keys, values = (
        past[slots, :, torch.arange(room, device=past.device)].view(rows, room, 2, heads, size).permute(2, 0, 3, 1, 4)
    )
    hidden = torch.arange(room, device=past.device) > place[:, None]
    return read(joint[:, 0], keys, values, hidden[:, None], scale)


def attend_to_sentence(
    query: Float[Tensor, "rows context"], keys: Float[Tensor, "batch heads source size"],
    values: Float[Tensor, "batch heads source size"], counts: Bool[Tensor, "batch source"], *, scale: float,
) -> Context:  # fmt: skip
    """As many rows for each sentence, side by side."""
    batch, heads, source, size = keys.shape
    if not applies(query, size):
        return plain_attend_to_sentence(query, keys, values, counts, scale=scale)
    from regard.nn.kernels.steps.attend_tiles import attend_to_sentence

    out, keys, values = torch.empty_like(query), with_whole_rows(keys), with_whole_rows(values)
    attend_to_sentence[(len(query), heads)](
        query, keys, values, counts.contiguous().view(torch.uint8), out, scale, source, *keys.stride()[:3],
        *values.stride()[:3], len(query) // batch, HEADS=heads, SIZE=size, C=power_of_two(size), B=BLOCK,
        **warps(len(query), heads),
    )  # fmt: skip
    return out


def plain_attend_to_sentence(
    query: Float[Tensor, "rows context"], keys: Float[Tensor, "batch heads source size"],
    values: Float[Tensor, "batch heads source size"], counts: Bool[Tensor, "batch source"], *, scale: float,
) -> Context:  # fmt: skip
    """The specification."""
    width = len(query) // len(keys)
    keys, values, counts = (side.repeat_interleave(width, dim=0) for side in (keys, values, counts))
    return read(query.view(len(query), keys.shape[1], -1), keys, values, ~counts[:, None], scale)


def read(
    query: Float[Tensor, "rows heads size"], keys: Float[Tensor, "rows heads places size"],
    values: Float[Tensor, "rows heads places size"], hidden: Bool[Tensor, "rows 1 places"], scale: float,
) -> Context:  # fmt: skip
    scores = (scale * query[:, :, None] @ keys.mT)[:, :, 0].masked_fill(hidden, torch.finfo(query.dtype).min)
    weights = scores.softmax(dim=-1).masked_fill(hidden, 0.0)
    return (weights[:, :, None] @ values).flatten(1)


def warps(rows: int, heads: int) -> dict[str, Any]:
    return {"num_warps": 4 if rows * heads < MANY else 2} | early(rows)
