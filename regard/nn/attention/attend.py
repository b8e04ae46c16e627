"""Scores -> weights -> context. The only place that masks and normalises."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.shared import Record

Weights = Float[Tensor, "batch target source"]


def normalise(scores: Weights, visible: Bool[Tensor, "batch #target source"]) -> Weights:
    """α_i = softmax(e_i) over the visible keys, 0 elsewhere; all 0 where nothing is visible."""
    hidden = ~visible
    lowest = torch.finfo(scores.dtype).min  # not -inf: a row with nothing visible stays finite
    return scores.masked_fill(hidden, lowest).softmax(dim=-1).masked_fill(hidden, 0.0)


def mix(values: Float[Tensor, "batch source value"]) -> Callable[[Weights], Float[Tensor, "batch target value"]]:
    """Σ_j α_ij v_j of these values as a function for one pass over a target: dV is one product over all steps."""
    if torch.is_autocast_enabled(values.device.type):
        values = values.to(torch.get_autocast_dtype(values.device.type))
    if not (torch.is_grad_enabled() and values.requires_grad):
        return lambda weights: weights.to(values.dtype) @ values
    record = Record()
    tied: Tensor = _Tie.apply(values, record)  # type: ignore[no-untyped-call]
    return lambda weights: _Use.apply(weights.to(values.dtype), tied, record)  # type: ignore[no-untyped-call]


class _Tie(torch.autograd.Function):
    """The identity on V; backward runs after every use has: dV = Σ_i α_i ⊗ g_i."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, record: Record) -> Tensor:
        ctx.record = record
        ctx.set_materialize_grads(False)
        return values.view_as(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Any) -> tuple[Tensor | None, None]:
        if (both := ctx.record.joined(dim=1)) is None:
            return None, None
        weights, gradients = both
        return weights.transpose(1, 2) @ gradients, None


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, record: Record) -> Tensor:
        ctx.save_for_backward(weights, values)
        ctx.record = record
        return weights @ values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,), (weights, values) = gradients, ctx.saved_tensors
        ctx.record.add(weights, gradient)
        return gradient @ values.transpose(1, 2), None, None


def attend(
    scores: Weights, values: Float[Tensor, "batch source value"], visible: Bool[Tensor, "batch #target source"]
) -> tuple[Float[Tensor, "batch target value"], Weights]:
    """c_i = Σ_j α_ij v_j, and the α themselves."""
    weights = normalise(scores, visible)
    return mix(values)(weights), weights
