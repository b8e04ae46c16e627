"""Dot attention without a [target, source] tensor where libraries have no path: windows, hard choice, copying, wide heads.

s_ij = scale q_i · k_j over the keys that count for query i: those that are visible, from first_i to last_i.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.kernels.attention.flash_launch import Outer, Rule, Saved, gradients_of, launch_look
from regard.nn.kernels.attention.flash_plans import WIDEST
from regard.nn.kernels.recurrent.scan import KINDS_OF_NUMBER, here

Query = Float[Tensor, "batch heads target size"]
Keys = Float[Tensor, "batch heads source size"]
Values = Float[Tensor, "batch heads source value"]
Visible = Bool[Tensor, "batch source"]
Bound = Int[Tensor, "batch #heads target"]
Number = Float[Tensor, "batch heads target"]


class Look(NamedTuple):
    """What a query read; log Σ_j e^s_ij; where a hard choice fell, and log p of that place."""

    context: Float[Tensor, "batch heads target value"]
    log_sum: Number
    place: Int[Tensor, "batch heads target"] | None = None
    log_prob: Number | None = None


def applies(query: Tensor, values: Tensor) -> bool:
    """Whether this machine can, and the heads are not too wide."""
    return here(query) and query.dtype in KINDS_OF_NUMBER and max(query.shape[-1], values.shape[-1]) <= WIDEST


def flash_attention(
    query: Query, keys: Keys, values: Values, *, scale: float = 1.0, visible: Visible | None = None, first: Bound | None = None,
    last: Bound | None = None, centre: Number | None = None, deviation: float = 1.0,
) -> Look:  # fmt: skip
    """c_i = Σ_j w_ij v_j, w = softmax(s); a centre p multiplies w_ij by e^(-(j - p_i)² / 2σ²) (Luong et al. 2015, eq. 10)."""
    rule = Rule(scale, visible, *window(first, last, keys), deviation)
    context, log_sum, _, _, _ = look(query, keys, values, centre, rule)
    return Look(context, log_sum)


def hard_attention(
    query: Query, keys: Keys, values: Values, *, scale: float = 1.0, visible: Visible | None = None, first: Bound | None = None,
    last: Bound | None = None, seed: int | None = None, straight_through: bool = False,
) -> Look:  # fmt: skip
    """c_i = v_j of one j: the best, or with a seed one drawn from softmax(s), as the best of s and Gumbel noise is.

    Queries and keys learn from log p_ij (REINFORCE), and with `straight_through` as if c_i had been Σ_j p_ij v_j.
    """
    rule = Rule(scale, visible, *window(first, last, keys), picks=True, straight_through=straight_through, seed=seed)
    context, log_sum, place, log_prob, _ = look(query, keys, values, None, rule)
    return Look(context, log_sum, place, log_prob)


def copy_log_prob(
    query: Query, keys: Keys, words: Int[Tensor, "batch source"], target: Int[Tensor, "batch target"], *, scale: float = 1.0,
    visible: Visible | None = None,
) -> tuple[Number, Number]:  # fmt: skip
    """log Σ_j e^s_ij over the places j that have word i of the target, and over all: log p of copying it is the difference."""
    rule = Rule(scale, visible, words=words.contiguous(), target=target.contiguous())
    _, log_sum, _, _, log_match = look(query, keys, None, None, rule)
    return log_match, log_sum


def window(first: Tensor | None, last: Tensor | None, keys: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Both ends of the windows, or none."""
    if first is None and last is None:
        return None, None
    first = torch.zeros_like(last) if first is None else first  # type: ignore[arg-type]
    last = torch.full_like(first, keys.shape[2] - 1) if last is None else last
    heads = max(first.shape[1], last.shape[1])
    return first.expand(-1, heads, -1).contiguous(), last.expand(-1, heads, -1).contiguous()


def look(query: Tensor, keys: Tensor, values: Tensor | None, centre: Tensor | None, rule: Rule) -> tuple[Any, ...]:
    parts = [None if part is None else part.contiguous() for part in (query, keys, values, centre)]
    return _Look.apply(*parts, rule)  # type: ignore[no-untyped-call, no-any-return]


class _Look(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor | None, centre: Tensor | None, rule: Rule
    ) -> tuple[Tensor | None, ...]:
        mixes = values is not None and (not rule.picks or (rule.straight_through and any(ctx.needs_input_grad[:2])))
        saved, picked, log_prob = launch_look(query, keys, values, centre, rule, mixes)
        ctx.save_for_backward(*saved)
        ctx.rule = rule
        ctx.set_materialize_grads(False)
        if saved.place is not None:
            ctx.mark_non_differentiable(saved.place)
        return (picked if rule.picks else saved.mixed), saved.level, saved.place, log_prob, saved.matched

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        context, log_sum, _, log_prob, log_match = (None if part is None else part.contiguous() for part in gradients)
        slack = log_prob if log_sum is None else -log_sum if log_prob is None else log_prob - log_sum
        saved, outer = Saved(*ctx.saved_tensors), Outer(context, slack, log_prob, log_match)
        return *gradients_of(saved, outer, ctx.rule), None
