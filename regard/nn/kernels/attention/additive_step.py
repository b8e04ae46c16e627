"""Additive attention inside a decoder's loop: one launch per step forward, one backward, and one for the keys of all steps.

α_ij = softmax_j(w · tanh(q_i + k_j)) and c_i = Σ_j α_ij v_j. Backward, a step leaves (q_i, ds_i) and (α_i, g_i) behind;
the gradients of keys, values and w are taken once for all steps, and no [steps, source, size] tensor exists.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.autograd import apply
from regard.nn.kernels.machine import able, interpreted, power_of_two, with_whole_rows
from regard.nn.linear import Record, lowered

Keys = Float[Tensor, "batch heads source size"]
Values = Float[Tensor, "batch heads source value"]
Visible = Bool[Tensor, "batch source"]
ScoreVector = Float[Tensor, "heads size"]
Queries = Float[Tensor, "batch queries heads size"]
Context = Float[Tensor, "batch queries heads value"]
Weights = Float[Tensor, "batch queries heads source"]
TILE = 1 << 14  # elements of keys or values that a program holds at a time
WIDEST = 4096  # of a key and of a value


class Sentence(NamedTuple):
    """What all steps of one pass read."""

    keys: Keys
    values: Values
    visible: Visible | None
    score_vector: ScoreVector

    @property
    def strides(self) -> tuple[int, ...]:
        return *self.keys.stride()[:3], *self.values.stride()[:3]

    @property
    def mask(self) -> Tensor:
        return self.score_vector if self.visible is None else self.visible.view(torch.uint8)


class StepRecords(NamedTuple):
    """What steps record while going backward."""

    asked: Record  # (q, ds)
    read: Record  # (α, g)


def applies(keys: Keys, values: Values) -> bool:
    """Whether this machine can."""
    return able(keys) and able(values) and max(keys.shape[-1], values.shape[-1]) <= WIDEST


def bind_step(
    keys: Keys, values: Values, visible: Visible | None, score_vector: ScoreVector
) -> Callable[[Queries], tuple[Context, Float[Tensor, "batch heads queries source"]]]:
    """One step over these keys as a function for one pass: projected queries -> contexts, weights."""
    keys, values = (with_whole_rows(one.to(lowered(one))) for one in (keys, values))  # once per pass instead of once per step
    records = StepRecords(Record(), Record())
    seen = None if visible is None else visible.contiguous()
    keys, values, score_vector = apply(_TieSentence, keys, values, seen, score_vector.contiguous(), records)

    def step(query: Queries) -> tuple[Tensor, Tensor]:
        context, weights = apply(_AdditiveStep, query.contiguous(), keys, values, seen, score_vector, records)
        return context, weights.transpose(1, 2)

    return step


class _TieSentence(torch.autograd.Function):
    """The identity on keys, values and w. Backward runs after every step has left its record."""

    @staticmethod
    def forward(
        ctx: Any, keys: Tensor, values: Tensor, visible: Tensor | None, score_vector: Tensor, records: StepRecords
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(keys, values, visible, score_vector)
        ctx.records = records
        ctx.set_materialize_grads(False)
        return keys.view_as(keys), values.view_as(values), score_vector.view_as(score_vector)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Any) -> tuple[Tensor | None, ...]:
        asked, read = ctx.records.asked.joined(dim=1), ctx.records.read.joined(dim=1)
        if asked is None or read is None:
            return None, None, None, None, None
        sentence = Sentence(*ctx.saved_tensors)
        wants_key, wants_value, _visible, wants_score_vector, _records = ctx.needs_input_grad
        by_key, by_score_vector = gradient_of_keys(sentence, *asked) if wants_key or wants_score_vector else (None, None)
        by_value = gradient_of_values(*read).to(sentence.values.dtype) if wants_value else None
        return by_key, by_value, None, by_score_vector, None


class _AdditiveStep(torch.autograd.Function):
    """One step, which may be of several queries."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        visible: Tensor | None,
        score_vector: Tensor,
        records: StepRecords,
    ) -> tuple[Tensor, Tensor]:
        context, weights = attended(query, Sentence(keys, values, visible, score_vector))
        ctx.save_for_backward(query, keys, values, visible, score_vector, weights)
        ctx.records = records
        ctx.set_materialize_grads(False)
        return context, weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        query, *parts, weights = ctx.saved_tensors
        sentence, (gradient, watched) = Sentence(*parts), gradients
        if gradient is None:
            gradient = sentence.values.new_zeros(*query.shape[:3], sentence.values.shape[-1])
        into, grads = attended_backward(query, sentence, weights, with_whole_rows(gradient), watched)
        if any(ctx.needs_input_grad[1:5]):  # otherwise nobody empties the record
            ctx.records.asked.add(query, grads)
            ctx.records.read.add(weights, gradient)
        return into, None, None, None, None, None


def attended(query: Queries, sentence: Sentence) -> tuple[Context, Weights]:
    from regard.nn.kernels.attention.additive_step_tiles import attend_step

    batch, queries, heads, _ = query.shape
    source, value = sentence.values.shape[2:]
    context = query.new_empty(batch, queries, heads, value, dtype=sentence.values.dtype)
    weights = query.new_empty(batch, queries, heads, source, dtype=torch.float32)
    attend_step[(batch * queries * heads,)](
        query, sentence.keys, sentence.values, sentence.mask, sentence.score_vector, context, weights, source, queries, heads,
        *sentence.strides, MASKED=sentence.visible is not None, **cut(sentence),
    )  # fmt: skip
    return context, weights


def attended_backward(
    query: Queries, sentence: Sentence, weights: Weights, gradient: Context, watched: Weights | None
) -> tuple[Queries, Weights]:
    """dq and ds = α ∗ (dα - Σ α dα), where dα = g · v + the gradient of the weights."""
    from regard.nn.kernels.attention.additive_step_tiles import attend_step_backward

    batch, queries, heads, source = weights.shape
    into, grads = torch.empty_like(query), torch.empty_like(weights)
    direct = weights if watched is None else watched.contiguous()
    attend_step_backward[(batch * queries * heads,)](
        query, sentence.keys, sentence.values, sentence.score_vector, weights, gradient, direct, into, grads, source, queries,
        heads, *sentence.strides, *gradient.stride()[:3], WATCHED=watched is not None, **cut(sentence),
    )  # fmt: skip
    return into, grads


def gradient_of_keys(sentence: Sentence, queries: Queries, grads: Weights) -> tuple[Keys, ScoreVector]:
    """dk_j = Σ_i ds_ij w ∗ (1 - tanh²(q_i + k_j)) and dw = Σ_ij ds_ij tanh(q_i + k_j), over all steps at once."""
    from regard.nn.kernels.attention.additive_step_tiles import keys_backward

    keys, score_vector = sentence.keys, sentence.score_vector
    batch, heads, source, size = keys.shape
    depth = power_of_two(size)
    rows = min(max(TILE // 2 // depth, 1), power_of_two(source))
    tiles = -(-source // rows)
    by_key, shares = torch.empty_like(keys), keys.new_empty(batch, heads, tiles, size, dtype=torch.float32)
    keys_backward[(batch * heads, tiles)](
        queries, keys, sentence.mask, score_vector, grads, by_key, shares, source, queries.shape[1], heads, *keys.stride()[:3],
        *by_key.stride()[:3], SIZE=size, D=depth, BJ=rows, MASKED=sentence.visible is not None, FAST=not interpreted(),
        STAGES=3, num_warps=warps_for(rows * depth),
    )  # fmt: skip
    return by_key, shares.sum((0, 2)).to(score_vector.dtype)


def gradient_of_values(weights: Weights, gradients: Context) -> Values:
    """dV = Σ_i α_i ⊗ g_i, over all steps at once."""
    return weights.to(gradients.dtype).permute(0, 2, 3, 1) @ gradients.transpose(1, 2)


def cut(sentence: Sentence) -> dict[str, Any]:
    """How a step is cut into tiles of source positions: into one, if it fits."""
    source, value = sentence.values.shape[2:]
    size = sentence.keys.shape[-1]
    depth, width = power_of_two(size), power_of_two(value)
    most = max(TILE // max(depth, width), 1)
    rows = min(most if source <= most else max(most // 2, 1), power_of_two(source))
    facts = {"SIZE": size, "VALUE": value, "D": depth, "E": width, "BJ": rows, "ONE": source <= rows, "FAST": not interpreted()}
    return facts | {"num_warps": warps_for(rows * max(depth, width))}


def warps_for(numbers: int) -> int:
    """About 64 elements per thread."""
    return min(max(numbers // 2048, 1), 16)
