"""Dropout inside kernels: a mask is a function of an element's place and of a seed, drawn again backward and never kept."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from regard.nn.dropout import STEPS


class Seed(NamedTuple):
    """Where draws come from: a number that lies on the device, so that a CUDA graph draws a new one at every replay, and a
    number that tells calls apart which share it."""

    number: Int[Tensor, "1"]
    call: int = 0


def rounded(rate: float) -> float:
    """To what 16 random bits can say."""
    return round(rate * STEPS) / STEPS


def seed_of(rate: float, seed: Seed | None, like: Tensor) -> Seed | None:
    if rounded(rate) == 0.0:
        return None
    return seed or Seed(torch.randint(0, 2**62, (1,), device=like.device))


def draws(seed: Seed | None, rate: float, dummy: Tensor) -> tuple[Tensor, tuple[int, int, float], dict[str, bool]]:
    """What a kernel wants to know of a dropout: its seed; the call, how many of 2^16 steps it drops, the scale of the rest."""
    if seed is None:
        return dummy, (0, 0, 1.0), {"DROPS": False}
    return seed.number, (seed.call, round(rate * STEPS), 1.0 / (1.0 - rate) if rate < 1.0 else 0.0), {"DROPS": True}
