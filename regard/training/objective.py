"""What training minimises: a model's loss under the recipe's options, as a module."""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.models import Model
from regard.models.interface import Loss, LossOptions
from regard.recipe import Training


def options_of(training: Training) -> LossOptions:
    return LossOptions(training.label_smoothing, training.scheduled_sampling, training.penalties, training.entropy)


class Objective(nn.Module):
    """The loss as a module, so that DistributedDataParallel can wrap it. `names` are those of its parts, in order."""

    def __init__(
        self, model: Model, label_smoothing: float = 0.0, scheduled_sampling: float = 0.0,
        penalties: Mapping[str, float] | None = None, entropy: float = 0.01,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model, self.options = model, LossOptions(label_smoothing, scheduled_sampling, penalties or {}, entropy)
        self.names = model.part_names(self.options)

    def forward(self, batch: Batch) -> Loss:
        return self.model.loss(batch, self.options)


def in_a_row(loss: Loss) -> Float[Tensor, "losses"]:
    """The total and its parts."""
    return torch.stack([loss.total, *loss.parts.values()])
