"""Scores -> weights -> context. The only place that masks and normalises."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Weights = Float[Tensor, "batch target source"]


def normalise(scores: Weights, visible: Bool[Tensor, "batch #target source"]) -> Weights:
    """α_i = softmax(e_i) over the visible keys, 0 elsewhere; all 0 where nothing is visible."""
    hidden = ~visible
    lowest = torch.finfo(scores.dtype).min  # not -inf: a row with nothing visible stays finite
    return scores.masked_fill(hidden, lowest).softmax(dim=-1).masked_fill(hidden, 0.0)


def attend(
    scores: Weights, values: Float[Tensor, "batch source value"], visible: Bool[Tensor, "batch #target source"]
) -> tuple[Float[Tensor, "batch target value"], Weights]:
    """c_i = Σ_j α_ij v_j, and the α themselves."""
    weights = normalise(scores, visible)
    return weights.to(values.dtype) @ values, weights
