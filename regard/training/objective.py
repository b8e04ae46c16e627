"""What training minimises: the cross-entropy of the true target, summed over its tokens."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.tokenizers import PAD
from regard.models import SequenceToSequence


class Examples(NamedTuple):
    """A batch on its device."""

    source: Int[Tensor, "batch source"]
    source_lengths: Int[Tensor, "batch"]
    target_input: Int[Tensor, "batch target"]
    target_output: Int[Tensor, "batch target"]


class Objective(nn.Module):
    """The loss as a module, so that DistributedDataParallel can wrap it."""

    def __init__(self, model: SequenceToSequence, label_smoothing: float, scheduled_sampling: float = 0.0) -> None:
        super().__init__()
        self.model, self.label_smoothing, self.scheduled_sampling = model, label_smoothing, scheduled_sampling

    def forward(self, examples: Examples) -> Float[Tensor, ""]:
        words = examples.target_input
        if self.scheduled_sampling and self.training:
            words = self.sample(examples)
        steps = self.model.decode(examples.source, examples.source_lengths, words)
        return self.model.decoder.loss(steps.outputs, examples.target_output, self.label_smoothing)

    @torch.no_grad()
    def sample(self, examples: Examples) -> Int[Tensor, "batch target"]:
        """Scheduled sampling in two passes (Duckworth et al. 2019): the first predicts every word from the true ones,
        the second reads some of the predictions. One way for every decoder, and no loop over words."""
        logits = self.model(examples.source, examples.source_lengths, examples.target_input)
        own = torch.cat([examples.target_input[:, :1], logits.argmax(dim=-1)[:, :-1]], dim=1)
        chance = torch.rand(own.shape, device=own.device) < self.scheduled_sampling
        return torch.where(chance & (examples.target_input != PAD), own, examples.target_input)
