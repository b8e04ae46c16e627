"""The way there and back of a batch as a CUDA graph, for the shapes that come again and again."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batching import Batch, roomy
from regard.models.interface import Copies
from regard.training.capture import Captured
from regard.training.leaves import Leaves
from regard.training.objective import Examples, Loss, Objective, in_a_row, on_device

GRAPHS = 96  # shapes whose graphs are kept
ROWS, COLUMNS = 16, 4  # what divides the shapes of batches: the larger, the fewer shapes and the more padding


class Replay:
    """Adds the gradients of scale times the loss of a batch to those of the parameters; returns it and its parts, scaled."""

    def __init__(self, objective: Objective, precision: str, device: torch.device) -> None:
        self.precision, self.device = precision, device
        self.objective = Leaves(objective, torch.bfloat16 if precision == "bfloat16" else None)
        parameters, leaves = self.objective.parameters, self.objective.tensors
        self.captured = Captured(self.compute, parameters, keep=GRAPHS, buffers=objective.buffers(), leaves=leaves)

    def compute(self, scale: Float[Tensor, ""], *parts: Any) -> Float[Tensor, "losses"]:
        with autocast(self.device, self.precision):
            loss: Loss = self.objective(joined(parts))
        return in_a_row(loss) * scale

    def __call__(self, batch: Batch, scale: float) -> Float[Tensor, "losses"]:
        examples = on_device(roomy(batch, ROWS, COLUMNS), self.device)
        return self.captured(torch.full((), scale, device=self.device), *parted(examples))


def parted(examples: Examples) -> tuple[Any, ...]:
    """A batch as the inputs of a graph: tensors, and what belongs to it as shapes do."""
    words, size = (None, None) if examples.copies is None else examples.copies
    return *examples[:4], words, size, examples.links


def joined(parts: Sequence[Any]) -> Examples:
    source, lengths, read, written, words, size, links = parts
    return Examples(source, lengths, read, written, None if words is None else Copies(words, size), links)


def autocast(device: torch.device, precision: str) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")
