"""Additive attention in Triton, forward and backward: no [target, source, size] tensor, and scores of so many rows at a time.

Forward computes a chunk of scores (score_tiles) and mixes values by them (mix_tiles). Backward computes the chunk again, then
its gradient (grad_tiles), from which the gradients of queries and keys (side_tiles) and of values (value_tiles) are summed up,
each element by one program: no atomics, so two runs are the same to the last bit.
"""

from functools import singledispatch
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from regard.nn.autograd import apply
from regard.nn.kernels.attention.additive_plan import KEYS, Chunk, Sizes, filled
from regard.nn.kernels.machine import DTYPES, here, interpreted, power_of_two

Queries = Float[Tensor, "batch heads target size"]
Keys = Float[Tensor, "batch heads source size"]
ScoreVector = Float[Tensor, "heads size"]
Values = Float[Tensor, "batch heads source value"]
Context = Float[Tensor, "batch heads target value"]
LogSum = Float[Tensor, "batch heads target"]
Visible = Bool[Tensor, "batch source"]
Range = Int[Tensor, "batch #heads target"]


def applies(query: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether this machine can."""
    return all(here(x) and x.dtype in DTYPES for x in (query, keys, values))


def additive_attention(
    query: Queries, keys: Keys, score_vector: ScoreVector, values: Values, visible: Visible | None = None,
    first: Range | None = None, last: Range | None = None,
) -> tuple[Context, LogSum]:  # fmt: skip
    """c_i = Σ_j α_ij v_j and log Σ_j e^(e_ij); α_i is the softmax of e_ij = v · tanh(q_i + k_j) over the visible j of a range.

    The range goes from first_i to last_i, both included; without them it is all keys.
    A query that sees nothing gets a context of 0 and a log-sum-exp of -∞, through which no gradient flows.
    """
    return apply(_Additive, query, keys, score_vector, values, visible, first, last)


class _Additive(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, score_vector: Tensor, values: Tensor, *limits: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        context, log_sum = launch_forward(query, keys, score_vector, values, *limits)
        ctx.save_for_backward(query, keys, score_vector, values, context, log_sum, *limits)
        ctx.mark_non_differentiable(log_sum)
        return context.to(values.dtype), log_sum

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, score_vector, values, context, log_sum, *limits = ctx.saved_tensors
        sizes, gradient, visible = sizes_of(query, values), outer[0].contiguous(), limits[0]
        middle = (gradient * context).sum(-1)  # Σ_j α_ij dα_ij = c_i · dc_i, of a context that was not rounded
        sides = sides_of(sizes, query, hide(keys, visible), score_vector, both=True)
        found = room_for(sizes, query, keys, values)
        given = Given(hide(values, visible), gradient, log_sum, middle)
        both_sides_backward(sizes, bounds_of(sizes, query, *limits), sides, given, found)
        of_score_vector = found.score_vector.sum((0, 2))[:, : sizes.size].to(score_vector.dtype)
        return found.query, found.keys.to(keys.dtype), of_score_vector, found.values.to(values.dtype), None, None, None


@singledispatch
def launch_forward(
    query: Queries, keys: Keys, score_vector: Tensor, values: Values, *limits: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The contexts, and ln Σ e^s."""
    sizes, visible = sizes_of(query, values), limits[0]
    sides = sides_of(sizes, query, hide(keys, visible), score_vector)
    return attend_chunks(sizes, bounds_of(sizes, query, *limits), sides, hide(values, visible))


def sizes_of(query: Queries, values: Values) -> Sizes:
    (batch, heads, target, size), (*_, source, value) = query.shape, values.shape
    return Sizes(batch, heads, target, source, size, value)


def hide(inputs: Float[Tensor, "batch heads source any"], visible: Visible | None) -> Float[Tensor, "batch heads source any"]:
    """What nobody sees is 0: not even a NaN there reaches anything."""
    return (inputs if visible is None else inputs.masked_fill(~visible[:, None, :, None], 0.0)).contiguous()


class Bounds(NamedTuple):
    """Who looks at whom, as the kernels are told."""

    pointers: tuple[Tensor, Tensor, Tensor]
    flags: dict[str, bool]


def bounds_of(sizes: Sizes, query: Queries, visible: Visible | None, first: Range | None, last: Range | None) -> Bounds:
    flags = {"MASKED": visible is not None, "RANGED": first is not None or last is not None}
    seen = query if visible is None else visible.contiguous().view(torch.uint8)
    begin, end = (bound(sizes, query, *limit) if flags["RANGED"] else query for limit in ((first, 0), (last, sizes.source - 1)))
    return Bounds((seen, begin, end), flags)


def bound(sizes: Sizes, query: Queries, given: Range | None, otherwise: int) -> Int[Tensor, "batch heads target"]:
    limit = torch.full((1, 1, 1), otherwise, device=query.device) if given is None else given
    return limit.expand(sizes.batch, sizes.heads, sizes.target).contiguous()


class Sides(NamedTuple):
    """What scores are computed from: e^(2q) and e^(2k), the elements of a unit or (for backward) of a row side by side."""

    queries: Float[Tensor, "sequences width queries"]
    keys: Float[Tensor, "sequences width keys"]
    score_vector: Float[Tensor, "heads width"]
    reach: Float[Tensor, "sequences"]
    query_rows: Float[Tensor, "sequences queries width"]
    key_rows: Float[Tensor, "sequences keys width"]


def sides_of(sizes: Sizes, query: Queries, keys: Keys, score_vector: ScoreVector, both: bool = False) -> Sides:
    reach = torch.maximum(reach_of(query), reach_of(keys))  # stays on the device: nobody waits for it
    energies = pad(score_vector.float(), (0, sizes.width - sizes.size)) if sizes.width > sizes.size else score_vector.float()
    queries, query_rows = raised(sizes, query.contiguous(), reach, sizes.queries, sizes.tile, both)
    columns, key_rows = raised(sizes, keys, reach, sizes.keys, KEYS, both)
    return Sides(queries, columns, energies.contiguous(), reach, query_rows, key_rows)


def reach_of(inputs: Float[Tensor, "batch heads time size"]) -> Float[Tensor, "sequences"]:
    """The largest |x| of each sequence."""
    rows = inputs.flatten(2).flatten(0, 1)
    return torch.linalg.vector_norm(rows, torch.inf, 1, dtype=torch.float32) if rows.numel() else rows.float().sum(1)


def raised(
    sizes: Sizes, inputs: Float[Tensor, "batch heads time size"], reach: Float[Tensor, "sequences"], rows: int, tile: int,
    both: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    from regard.nn.kernels.attention.additive_tiles import raise_tiles

    by_unit = inputs.new_empty(sizes.sequences, sizes.width, rows, dtype=torch.float32)
    by_row = inputs.new_empty(sizes.sequences, rows, sizes.width, dtype=torch.float32) if both else by_unit
    if sizes.sequences:
        raise_tiles[(sizes.sequences, rows // tile, sizes.width // sizes.units)](
            inputs, reach, by_unit, by_row, inputs.shape[2], rows,
            D=sizes.size, UNITS=sizes.width, BR=tile, BD=sizes.units, BOTH=both,
        )  # fmt: skip
    return by_unit, by_row


def attend_chunks(sizes: Sizes, bounds: Bounds, sides: Sides, values: Values) -> tuple[Context, LogSum]:
    from regard.nn.kernels.attention.additive_tiles import mix_tiles, score_tiles

    context = values.new_empty(sizes.batch, sizes.heads, sizes.target, sizes.value, dtype=torch.float32)
    log_sum = context.new_empty(context.shape[:3])
    scores = context.new_empty(*sizes.room, sizes.keys)
    pairs, product = tile_of_pairs(sizes) | bounds.flags, tile_of_products(sizes, values, 512) | bounds.flags
    for chunk in sizes.chunks():
        tiles, keys, place = chunk.rows // sizes.tile, sizes.keys // KEYS, (*chunk.place, *sizes.shape)
        score_tiles[(tiles, keys, chunk.sequences)](*sides[:4], *bounds.pointers, scores, *place, **pairs)
        grid = tiles, -(-sizes.value // product["BE"]), chunk.sequences
        mix_tiles[grid](scores, values, *bounds.pointers, context, log_sum, *place, **product)
    return context, log_sum


def tile_of_pairs(sizes: Sizes) -> dict[str, Any]:
    units = {"D": filled(sizes.size, 4), "WIDTH": sizes.width, "WHOLE": power_of_two(sizes.width)}
    return units | {"TQ": sizes.tile, "TK": KEYS, "FAST": not interpreted(), "num_warps": 4, "num_stages": 1}


def tile_of_products(sizes: Sizes, values: Values, room: int) -> dict[str, Any]:
    """`room`: bytes of a row of values, or of their gradients, that a tile takes."""
    from triton import language as tl

    kind = tl.float32 if interpreted() else getattr(tl, DTYPES[values.dtype])
    width = min(power_of_two(sizes.value), room // values.element_size())
    facts = {"E": sizes.value, "BE": width, "KIND": kind, "PRECISION": "ieee" if interpreted() else "tf32x3"}
    return facts | {"TQ": sizes.tile, "TK": KEYS, "num_warps": 8 if width * values.element_size() > 256 else 4, "num_stages": 2}


class Given(NamedTuple):
    """What backward is given."""

    values: Values
    gradient: Context
    log_sum: LogSum
    middle: LogSum


class AdditiveGradients(NamedTuple):
    query: Queries
    keys: Keys
    values: Values
    score_vector: Float[Tensor, "batch heads query_tiles width"]


def room_for(sizes: Sizes, query: Queries, keys: Keys, values: Values) -> AdditiveGradients:
    """Where several chunks add to the gradient of a key, it is a float32 meanwhile."""
    kinds = [query.dtype, *(torch.float32 if sizes.in_parts else x.dtype for x in (keys, values))]
    by_input = (torch.empty(x.shape, dtype=kind, device=x.device) for x, kind in zip((query, keys, values), kinds, strict=True))
    tiles = sizes.queries // sizes.tile
    return AdditiveGradients(*by_input, query.new_empty(sizes.batch, sizes.heads, tiles, sizes.width, dtype=torch.float32))  # type: ignore[call-arg]


def tile_of_side(sizes: Sizes) -> dict[str, Any]:
    """Queries or keys by units."""
    units = {"D": sizes.size, "WIDTH": sizes.width, "UNITS": sizes.units}
    facts = {"TQ": sizes.tile, "TK": KEYS, "FAST": not interpreted()}
    return units | facts | {"num_warps": 4, "num_stages": 1, "maxnreg": 128}  # so that four programs share a processor


def both_sides_backward(sizes: Sizes, bounds: Bounds, sides: Sides, given: Given, found: AdditiveGradients) -> None:
    from regard.nn.kernels.attention.additive_backward import grad_tiles, value_tiles
    from regard.nn.kernels.attention.additive_tiles import score_tiles

    grads, across = sides.score_vector.new_empty(2, *sizes.room, sizes.keys)
    weights = given.values.new_empty(grads.shape)
    pairs, product = tile_of_pairs(sizes) | bounds.flags, tile_of_products(sizes, given.values, 256) | bounds.flags
    inner = product | tile_of_products(sizes, given.values, 128)
    for chunk in sizes.chunks():
        tiles, keys, place = chunk.rows // sizes.tile, sizes.keys // KEYS, (*chunk.place, *sizes.shape)
        score_tiles[(tiles, keys, chunk.sequences)](*sides[:4], *bounds.pointers, grads, *place, **pairs)
        grad_tiles[(tiles, keys, chunk.sequences)](grads, *given, *bounds.pointers, across, weights, *place, **inner)
        sum_up(sizes, bounds, sides, chunk, grads, across, found)
        grid = keys, -(-sizes.value // product["BE"]), chunk.sequences
        value_tiles[grid](weights, given.gradient, *bounds.pointers, found.values, *place, **product)


def sum_up(
    sizes: Sizes, bounds: Bounds, sides: Sides, chunk: Chunk, grads: Tensor, across: Tensor, found: AdditiveGradients
) -> None:  # fmt: skip
    """The score gradients of a chunk, into the gradients of queries, v and keys."""
    from regard.nn.kernels.attention.additive_backward import side_tiles

    told, place = (sides.score_vector, sides.reach, *bounds.pointers), (*chunk.place, *sizes.shape)
    tiles, keys, units = chunk.rows // sizes.tile, sizes.keys // KEYS, sizes.width // sizes.units
    side = tile_of_side(sizes) | bounds.flags
    side_tiles[(tiles, units, chunk.sequences)](
        sides.query_rows, sides.key_rows, *told, across, found.query, found.score_vector, *place, **side, QUERIES=True
    )
    side_tiles[(keys, units, chunk.sequences)](
        sides.key_rows, sides.query_rows, *told, grads, found.keys, found.score_vector, *place, **side, QUERIES=False
    )
