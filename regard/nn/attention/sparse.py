"""Softmax's sparse kin: most weights are exactly 0. (The package `entmax` has them too; ours obey the masks of the rest.)"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.autograd import apply

Rows = Float[Tensor, "*rows source"]


def sparsemax(scores: Rows) -> Rows:
    """argmin_p ‖p - e‖² over distributions = max(e - τ, 0)  (Martins & Astudillo 2016)."""
    return apply(_Power, scores, 2.0)


def entmax(scores: Rows) -> Rows:
    """1.5-entmax, half-way between softmax and sparsemax: max(e/2 - τ, 0)²  (Peters et al. 2019)."""
    return apply(_Power, scores, 1.5)


class _Power(torch.autograd.Function):
    """p = max((α - 1) e - τ, 0)^{1/(α-1)} for α = 2 and 1.5;  dp = (g - Σ s g / Σ s) s  with  s = p^{2-α}."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, alpha: float) -> Tensor:
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))  # sums in bfloat16 would be off by percents
        scaled = (scores - scores.amax(dim=-1, keepdim=True)) * (alpha - 1)
        scaled = scaled.clamp(min=-2)  # τ is at least -1, so what is lower has no weight; hidden keys are very low
        above = (scaled - THRESHOLDS[alpha](scaled)).clamp(min=0)
        weights = above if alpha == 2 else above.square()
        ctx.save_for_backward((weights > 0).to(weights.dtype) if alpha == 2 else above)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None]:
        (gradient,), (derivative,) = outer, ctx.saved_tensors
        mean = (gradient * derivative).sum(dim=-1, keepdim=True) / derivative.sum(dim=-1, keepdim=True)
        return (gradient - mean) * derivative, None


def sparsemax_threshold(scores: Rows) -> Float[Tensor, "*rows 1"]:
    """τ = (Σ of the k highest - 1) / k, for the largest k whose lowest is still above it."""
    ordered, rank = in_order(scores)
    thresholds = (ordered.cumsum(dim=-1) - 1) / rank
    return last_below(thresholds, ordered)


def entmax_threshold(scores: Rows) -> Float[Tensor, "*rows 1"]:
    """τ = M - √((1 - k var) / k) of the k highest, M their mean."""
    ordered, rank = in_order(scores)
    mean, square = ordered.cumsum(dim=-1) / rank, ordered.square().cumsum(dim=-1) / rank
    room = ((1 - rank * (square - mean.square())) / rank).clamp(min=0)
    return last_below(mean - room.sqrt(), ordered)


def in_order(scores: Rows) -> tuple[Rows, Float[Tensor, "source"]]:
    ordered = scores.sort(dim=-1, descending=True).values
    return ordered, torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype, device=scores.device)


def last_below(thresholds: Rows, ordered: Rows) -> Float[Tensor, "*rows 1"]:
    count = (thresholds <= ordered).sum(dim=-1, keepdim=True)
    return thresholds.gather(-1, count - 1)


THRESHOLDS = {2.0: sparsemax_threshold, 1.5: entmax_threshold}
