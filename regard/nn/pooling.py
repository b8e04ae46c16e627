"""A sequence as one vector."""

from collections.abc import Callable

from jaxtyping import Bool, Float
from torch import Tensor

States = Float[Tensor, "batch time size"]
Visible = Bool[Tensor, "batch time"]


def mean_over(states: States, visible: Visible) -> Float[Tensor, "batch size"]:
    """The mean of what is no padding."""
    counts = visible.sum(dim=1, keepdim=True).clamp(min=1)
    return states.masked_fill(~visible[..., None], 0.0).sum(dim=1) / counts


def max_over(states: States, visible: Visible) -> Float[Tensor, "batch size"]:
    """The largest value of each element over what is no padding (Collobert et al. 2011)."""
    return states.masked_fill(~visible[..., None], float("-inf")).amax(dim=1)


POOLINGS: dict[str, Callable[[States, Visible], Float[Tensor, "batch size"]]] = {"mean": mean_over, "max": max_over}
