"""Matrices as integers of eight bits and a scale for each row."""

import torch
from jaxtyping import Float, Int8
from torch import Tensor

TINY = 1e-30  # what a row of zeros is divided by
LARGEST = 127  # of the integers


def rounded(weight: Float[Tensor, "output input"]) -> tuple[Int8[Tensor, "output input"], Float[Tensor, "output"]]:
    """Integers Q from -127 to 127 and a scale s for each row: W ≈ s Q. Rounding s Q again gives the same."""
    scales = weight.abs().amax(dim=1).clamp_min(TINY) / LARGEST
    return (weight / scales[:, None]).round().clamp(-LARGEST, LARGEST).to(torch.int8), scales
