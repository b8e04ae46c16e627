"""Kernels that are launched before their predecessors have ended, and read their weights meanwhile: NVIDIA's programmatic
dependent launch, from Hopper on."""

import functools

import torch

from regard.nn.kernels.machine import interpreted

ROWS = 8  # up to which steps are so short that the time between two launches counts


def early(rows: int) -> dict[str, bool]:
    """What a launch is told."""
    return {"EARLY": True, "launch_pdl": True} if rows <= ROWS and able() else {"EARLY": False}


@functools.cache
def able() -> bool:
    return not interpreted() and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (9, 0)
