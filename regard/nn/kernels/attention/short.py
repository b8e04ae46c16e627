"""Attention of sentences: all keys in one tile, so that nothing is kept but queries, keys and values.

α_i = softmax_j(scale q_i · k_j) over the keys that i may see, c_i = Σ_j α_ij v_j. A query that sees nothing gets 0 and gives
no gradient. Queries, keys and values may be views of one product: nothing is copied, and time comes before heads in the
memory of all that is written, as the next product wants it.
"""

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.autograd import apply
from regard.nn.kernels.machine import DTYPES, here, interpreted, power_of_two, with_whole_rows

Query = Float[Tensor, "batch heads target size"]
Keys = Float[Tensor, "batch heads source size"]
Values = Float[Tensor, "batch heads source value"]
Context = Float[Tensor, "batch heads target value"]
Joint = Float[Tensor, "batch time parts heads size"]  # keys and values, after queries if the same product made them
Visible = Bool[Tensor, "batch source"]
Last = Int[Tensor, "#batch #heads target"]
LONGEST, WIDEST = 128, 128
ROOM = {2: 128 * 128, 4: 64 * 128}  # elements of keys or values, by the bytes of one: what fits with all else that a tile needs
WARPS = {16: (1, 2), 32: (2, 4), 64: (4, 4), 128: (8, 8)}  # by the longer side of a tile of scores: there, and back


class ShortRule(NamedTuple):
    """Which keys count, and the scale of their scores."""

    scale: float
    visible: Tensor | None
    last: Tensor | None  # for each query: no key after it
    causal: bool


class ShortPlan(NamedTuple):
    """How a kernel is cut."""

    queries: int  # a block
    pairs: int  # heads, one after another, a program
    warps: int
    registers: int | None  # a thread, at most


def applies(query: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Whether this machine can, and one tile holds a sentence."""
    if not all(here(one) and one.dtype in DTYPES for one in (query, keys, values)):
        return False
    width = max(keys.shape[3], values.shape[3])
    fits = power_of_two(keys.shape[2]) * power_of_two(width) <= ROOM[query.element_size()]
    return fits and max(query.shape[2], keys.shape[2]) <= LONGEST and width <= WIDEST


def short_attention(
    query: Query, keys: Keys, values: Values, *, scale: float, visible: Visible | None = None, last: Last | None = None,
    causal: bool = False,
) -> Context:  # fmt: skip
    """Key j counts for query i if it is visible, j <= last_i and, where `causal`, j <= i."""
    rule = ShortRule(scale, visible, last, causal)
    if not applies(query, keys, values):
        return plain_short_attention(query, keys, values, rule)
    return apply(_ShortAttention, with_whole_rows(query), with_whole_rows(keys), with_whole_rows(values), rule)


def short_joint_attention(
    fused: Joint, query: Query | None = None, *, scale: float, visible: Bool[Tensor, "batch time"] | None = None,
    last: Last | None = None, causal: bool = False,
) -> Float[Tensor, "batch target heads size"]:  # fmt: skip
    """The same of queries, keys and values that one product made, or of keys and values: its gradient is written as one too."""
    rule = ShortRule(scale, visible, last, causal)
    if not applies(*sides(fused, query)):
        return plain_short_attention(*sides(fused, query), rule).transpose(1, 2)
    asked = None if query is None else with_whole_rows(query)
    return apply(_ShortJointAttention, with_whole_rows(fused), asked, rule)


def plain_short_attention(query: Query, keys: Keys, values: Values, rule: ShortRule) -> Context:
    """The specification."""
    target, source = query.shape[2], keys.shape[2]
    j = torch.arange(source, device=keys.device)
    counts = torch.ones(1, 1, target, source, dtype=torch.bool, device=keys.device)
    counts = counts.tril() if rule.causal else counts
    counts = counts if rule.visible is None else counts & rule.visible[:, None, None]
    counts = counts if rule.last is None else counts & (j <= rule.last[..., None])
    scores = (rule.scale * query @ keys.mT).masked_fill(~counts, torch.finfo(query.dtype).min)
    return scores.softmax(dim=-1).masked_fill(~counts, 0.0) @ values


def sides(fused: Joint, query: Query | None = None) -> tuple[Query, Keys, Values]:
    """Queries, keys and values where they lie."""
    parts = fused.transpose(1, 3).unbind(2)
    asked, keys, values = parts if query is None else (query, *parts)
    return asked, keys, values


def time_first(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Room for [batch, heads, time, size] that lies in memory as [batch, time, heads, size]."""
    batch, heads, time, size = shape
    return like.new_empty(batch, time, heads, size).transpose(1, 2)


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor, rule: ShortRule) -> Tensor:
        ctx.save_for_backward(query, keys, values)
        ctx.rule = rule
        context = time_first(values, (*query.shape[:3], values.shape[3]))
        launch_forward(query, keys, values, context, rule)
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, values = ctx.saved_tensors
        into = [time_first(one, one.shape) for one in ctx.saved_tensors]
        launch_backward(query, keys, values, with_whole_rows(gradients[0]), into, ctx.rule)
        return *into, None


class _ShortJointAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, fused: Tensor, query: Tensor | None, rule: ShortRule) -> Tensor:
        ctx.save_for_backward(fused, query)
        ctx.rule = rule
        asked, keys, values = sides(fused, query)
        context = time_first(values, (*asked.shape[:3], values.shape[3]))
        launch_forward(asked, keys, values, context, rule)
        return context.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        fused, query = ctx.saved_tensors
        into = torch.empty(fused.shape, dtype=fused.dtype, device=fused.device)
        by_query = None if query is None else time_first(query, query.shape)
        gradient = with_whole_rows(gradients[0]).transpose(1, 2)
        launch_backward(*sides(fused, query), gradient, sides(into, by_query), ctx.rule)
        return into, by_query, None


@singledispatch
def launch_forward(query: Tensor, keys: Tensor, values: Tensor, context: Tensor, rule: ShortRule) -> None:
    from regard.nn.kernels.attention.short_tiles import attend_short

    plan, tensors = plan_for(query, keys, values), (query, keys, values, context)
    if programs := query.shape[0] * query.shape[1] // plan.pairs:
        scope, strides = scope_of(query, rule)
        attend_short[(programs,)](
            *tensors, *scope, *strides_of(*tensors), *strides, rule.scale * math.log2(math.e), *lengths(query, keys),
            **facts(plan, query, keys, values, rule),
        )  # fmt: skip


def launch_backward(
    query: Tensor, keys: Tensor, values: Tensor, gradient: Tensor, into: Sequence[Tensor], rule: ShortRule
) -> None:
    """`into` are the gradients of queries, keys and values, every element of which is written."""
    from regard.nn.kernels.attention.short_tiles import attend_short_backward

    plan, tensors = plan_for(query, keys, values, back=True), (query, keys, values, gradient, *into)
    if programs := query.shape[0] * query.shape[1] // plan.pairs:
        scope, strides = scope_of(query, rule)
        attend_short_backward[(programs,)](
            *tensors, *scope, *strides_of(*tensors), *strides, rule.scale * math.log2(math.e), rule.scale,
            *lengths(query, keys), **facts(plan, query, keys, values, rule),
        )  # fmt: skip


def scope_of(query: Tensor, rule: ShortRule) -> tuple[tuple[Tensor, Tensor], tuple[int, ...]]:
    """What is visible, each query's last key, and the strides of these. A kernel does not read what is not there."""
    visible = query if rule.visible is None else rule.visible.contiguous().view(torch.uint8)
    last = None if rule.last is None else rule.last.expand(query.shape[:3])
    return (visible, query if last is None else last), (0, 0, 0) if last is None else last.stride()


def strides_of(*tensors: Tensor) -> list[int]:
    return [stride for tensor in tensors for stride in tensor.stride()[:3]]


def lengths(query: Tensor, keys: Tensor) -> tuple[int, int, int]:
    return query.shape[1], query.shape[2], keys.shape[2]


def facts(plan: ShortPlan, query: Tensor, keys: Tensor, values: Tensor, rule: ShortRule) -> dict[str, Any]:
    import triton.language as tl

    assert query.dtype == keys.dtype == values.dtype
    size, value, target = keys.shape[3], values.shape[3], query.shape[2]
    tiles = {"SIZE": size, "VALUE": value, "D": power_of_two(size), "E": power_of_two(value)}
    tiles |= {"BM": plan.queries, "BN": power_of_two(keys.shape[2]), "BLOCKS": -(-target // plan.queries), "PAIRS": plan.pairs}
    flags = {"HIDES": rule.visible is not None, "LIMITS": rule.last is not None, "CAUSAL": rule.causal}
    kind = tl.float32 if interpreted() else getattr(tl, DTYPES[query.dtype])
    precision = "ieee" if interpreted() else "tf32x3"
    limit = {} if plan.registers is None else {"maxnreg": plan.registers}
    return tiles | flags | {"KIND": kind, "PRECISION": precision, "num_warps": plan.warps, "num_stages": 1} | limit


def plan_for(query: Tensor, keys: Tensor, values: Tensor, back: bool = False) -> ShortPlan:
    tile = power_of_two(query.shape[2]), power_of_two(keys.shape[2]), power_of_two(max(keys.shape[3], values.shape[3]))
    return plan_of(*tile, query.shape[1], query.element_size(), back)


def plan_of(target: int, source: int, width: int, heads: int, itemsize: int, back: bool) -> ShortPlan:
    """So that nothing spills and several programs share a processor (tests/nn/compiled_layers.py prints what they take). A
    float32 is multiplied in three parts, whose tiles take so much room that queries come a few at a time."""
    length = max(target, source)
    if itemsize == 4:
        return ShortPlan(16, 1, 8 if source * width >= 4096 else 4, None)
    warps = min(8, WARPS[length][back] * (1 if width <= 64 else 2))
    return ShortPlan(
        target, math.gcd(heads, max(1, 32 // length)), warps, 128 if length == 128 and width <= 64 and not back else None
    )
