"""What hard attention drew: all that its training needs to know."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Choice(NamedTuple):
    log_prob: Float[Tensor, "batch target"]  # of the places drawn at each step, all heads together
    entropy: Float[Tensor, "batch target"]  # of what they were drawn from
    lasting: bool = False  # whether what a step drew is known to later steps
