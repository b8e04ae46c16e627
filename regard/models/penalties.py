"""What training may ask beside the likelihood: of attention weights (PENALTIES), of what layers give (ACTIVATIONS).

Each is a sum over the batch, as the loss is.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import UserError
from regard.recipe import choose


class Evidence(NamedTuple):
    """Where a batch was looked at."""

    weights: Float[Tensor, "batch heads target source"]
    written: Bool[Tensor, "batch target"]  # steps that are no padding
    visible: Bool[Tensor, "batch source"]  # of the memory
    links: Float[Tensor, "batch target source"] | None  # given alignments: a distribution for each linked target word

    @property
    def looks(self) -> Float[Tensor, "batch heads target source"]:
        """The weights of real steps."""
        return self.weights.float() * self.written[:, None, :, None]


Penalty = Callable[[Evidence], Float[Tensor, ""]]


def coverage(evidence: Evidence) -> Float[Tensor, ""]:
    """Σ_i Σ_j min(α_ij, Σ_{k<i} α_kj): what is looked at again (See et al. 2017, eq. 12), the mean of the heads."""
    looks = evidence.looks
    before = looks.cumsum(dim=2) - looks
    return torch.minimum(looks, before).sum() / looks.shape[1]


def doubly_stochastic(evidence: Evidence) -> Float[Tensor, ""]:
    """Σ_j (1 - Σ_i α_ij)²: every source word is looked at as much as any (Xu et al. 2015, eq. 14), the mean of the heads."""
    looked = evidence.looks.sum(dim=2)
    counts = evidence.visible & evidence.written.any(dim=1, keepdim=True)
    return ((1 - looked).square() * counts[:, None]).sum() / looked.shape[1]


def guided(evidence: Evidence) -> Float[Tensor, ""]:
    """-Σ_i Σ_j A_ij log α_ij for given alignments A (Chen et al. 2016), α the mean of the heads."""
    if evidence.links is None:
        raise UserError(
            "training.penalties.guided needs given alignments: name a file of links in data.train.alignment, or of boxes in "
            "images in data.train.boxes"
        )
    mean = evidence.looks.mean(dim=1)
    return -(evidence.links * mean.clamp(min=1e-9).log()).sum()


PENALTIES: dict[str, Penalty] = {
    "coverage": coverage,
    "doubly_stochastic": doubly_stochastic,
    "guided": guided,
}

Outputs = Float[Tensor, "batch target size"]
ActivationPenalty = Callable[[Outputs, Bool[Tensor, "batch target"]], Float[Tensor, ""]]


def activation(outputs: Outputs, written: Bool[Tensor, "batch target"]) -> Float[Tensor, ""]:
    """Σ_t mean(h_t²), h_t under the output layer  (Merity et al. 2017, AR)."""
    return (outputs.float().square().mean(dim=-1) * written).sum()


def activation_change(outputs: Outputs, written: Bool[Tensor, "batch target"]) -> Float[Tensor, ""]:
    """Σ_t mean((h_t - h_t-1)²)  (Merity et al. 2017, TAR)."""
    return (outputs.float().diff(dim=1).square().mean(dim=-1) * written[:, 1:]).sum()


ACTIVATIONS: dict[str, ActivationPenalty] = {"activation": activation, "activation_change": activation_change}


def asks_attention(name: str) -> bool:
    """Whether it is about attention weights; an unknown name is refused."""
    choose({**PENALTIES, **ACTIVATIONS}, name, "penalty in training.penalties")
    return name not in ACTIVATIONS
