"""Dot attention without a [target, source] tensor where libraries have no path: windows, Gaussians, hard attention, wide heads.

s_ij = scale q_i · k_j over the keys that count for query i: those that are visible, from first_i to last_i.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.autograd import apply
from regard.nn.kernels.attention.flash_launch import FlashRule, Outer, Saved, gradients_of, launch_forward
from regard.nn.kernels.attention.flash_plans import WIDEST
from regard.nn.kernels.machine import DTYPES, here

Query = Float[Tensor, "batch heads target size"]
Keys = Float[Tensor, "batch heads source size"]
Values = Float[Tensor, "batch heads source value"]
Visible = Bool[Tensor, "batch source"]
Bound = Int[Tensor, "batch #heads target"]
Number = Float[Tensor, "batch heads target"]


class Attended(NamedTuple):
    """What each query read; log Σ_j e^s_ij; the key that hard attention picked."""

    context: Float[Tensor, "batch heads target value"]
    log_sum: Number
    place: Int[Tensor, "batch heads target"] | None = None


def applies(query: Tensor, values: Tensor) -> bool:
    """Whether this machine can, and the heads are not too wide."""
    return here(query) and query.dtype in DTYPES and max(query.shape[-1], values.shape[-1]) <= WIDEST


def flash_attention(
    query: Query, keys: Keys, values: Values, *, scale: float = 1.0, visible: Visible | None = None, first: Bound | None = None,
    last: Bound | None = None, centre: Number | None = None, deviation: float = 1.0,
) -> Attended:  # fmt: skip
    """c_i = Σ_j w_ij v_j, w = softmax(s); a centre p multiplies w_ij by e^(-(j - p_i)² / 2σ²) (Luong et al. 2015, eq. 10)."""
    return attended(query, keys, values, centre, FlashRule(scale, visible, *window(first, last, keys), deviation))


def hard_attention(
    query: Query, keys: Keys, values: Values, *, scale: float = 1.0, visible: Visible | None = None, first: Bound | None = None,
    last: Bound | None = None,
) -> Attended:  # fmt: skip
    """c_i = v_j of the best j, the first of equals: queries and keys learn nothing from it."""
    return attended(query, keys, values, None, FlashRule(scale, visible, *window(first, last, keys), picks=True))


def window(first: Tensor | None, last: Tensor | None, keys: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Both ends of the windows, or none."""
    if first is None and last is None:
        return None, None
    first = torch.zeros_like(last) if first is None else first  # type: ignore[arg-type]
    last = torch.full_like(first, keys.shape[2] - 1) if last is None else last
    heads = max(first.shape[1], last.shape[1])
    return first.expand(-1, heads, -1).contiguous(), last.expand(-1, heads, -1).contiguous()


def attended(query: Tensor, keys: Tensor, values: Tensor, centre: Tensor | None, rule: FlashRule) -> Attended:
    around = None if centre is None else centre.contiguous()
    return Attended(*apply(_FlashAttention, query.contiguous(), keys.contiguous(), values.contiguous(), around, rule))


class _FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, keys: Tensor, values: Tensor, centre: Tensor | None, rule: FlashRule
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        context, saved = launch_forward(query, keys, values, centre, rule)
        ctx.save_for_backward(*saved)
        ctx.rule = rule
        ctx.set_materialize_grads(False)
        if saved.place is not None:
            ctx.mark_non_differentiable(saved.place)
        return context, saved.log_sum, saved.place

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        outer = Outer(*(None if part is None else part.contiguous() for part in gradients[:2]))
        return *gradients_of(Saved(*ctx.saved_tensors), outer, ctx.rule), None
