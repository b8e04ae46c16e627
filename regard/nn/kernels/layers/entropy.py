"""The loss of rows of logits and its gradient in one launch, which nobody has to wait for: rows to ignore count 0."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.kernels.machine import able, power_of_two

TILE = 8192  # words at a time


def applies(logits: Tensor) -> bool:
    """Whether this machine can."""
    return able(logits)


def entropy(
    logits: Float[Tensor, "rows vocabulary"], target: Int[Tensor, "rows"], ignore: int, smoothing: float, learn: bool = True
) -> tuple[Float[Tensor, ""], Float[Tensor, "rows vocabulary"]]:
    """Σ -Σ q log p over the rows whose target is not to be ignored, with q = (1 - ε) [the truth] + ε / V, and its gradient
    p - q, which takes the place of the logits where `learn`."""
    from regard.nn.kernels.layers.entropy_tiles import row_entropy

    rows, vocabulary = logits.shape
    assert logits.stride(1) == 1
    losses = torch.empty(rows, dtype=torch.float32, device=logits.device)
    tile = min(TILE, power_of_two(vocabulary))
    row_entropy[(rows,)](
        logits, target, losses, logits.stride(0), ignore, vocabulary, smoothing, LEARN=learn, BV=tile,
        num_warps=min(max(tile // 1024, 1), 8),
    )  # fmt: skip
    return losses.sum(), logits
