"""A sequence as one vector."""

from jaxtyping import Bool, Float
from torch import Tensor


def mean_over(states: Float[Tensor, "batch time size"], visible: Bool[Tensor, "batch time"]) -> Float[Tensor, "batch size"]:
    """The mean of what is no padding."""
    counts = visible.sum(dim=1, keepdim=True).clamp(min=1)
    return states.masked_fill(~visible[..., None], 0.0).sum(dim=1) / counts
