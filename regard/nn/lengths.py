"""Which positions of padded sequences are real."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def length_mask(lengths: Int[Tensor, "batch"], time: int) -> Bool[Tensor, "batch time"]:
    """True where a position is within its row's length: t < length."""
    return torch.arange(time, device=lengths.device) < lengths[:, None]
