"""The forward and backward pass of a batch as a CUDA graph, for the shapes that come again and again."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batching import Batch, Column, pad_to_multiple
from regard.models.device import autocast, on_device
from regard.models.interface import Loss
from regard.training.capture import Captured
from regard.training.cast_weights import CastWeights
from regard.training.objective import Objective, in_a_row

GRAPHS = 96  # shapes whose graphs are kept
ROWS, COLUMNS = 16, 4  # what divides the shapes of batches: the larger, the fewer shapes and the more padding


class Replay:
    """Adds the gradients of scale times the loss of a batch to those of the parameters; returns it and its parts, scaled."""

    def __init__(self, objective: Objective, precision: str, device: torch.device) -> None:
        self.precision, self.device, self.writes = precision, device, objective.model.writes
        self.objective = CastWeights(objective, torch.bfloat16 if precision == "bfloat16" else None)
        parameters, leaves = self.objective.parameters, self.objective.tensors
        self.captured = Captured(self.compute, parameters, keep=GRAPHS, buffers=objective.buffers(), leaves=leaves)

    def compute(self, scale: Float[Tensor, ""], *parts: Any) -> Float[Tensor, "losses"]:
        with autocast(self.device, self.precision):
            loss: Loss = self.objective(joined(parts))
        return in_a_row(loss) * scale

    def __call__(self, batch: Batch, scale: float) -> Float[Tensor, "losses"]:
        columns = 1 if "lanes" in batch.columns else COLUMNS  # the state of a window goes on from its last column
        there = on_device(pad_to_multiple(batch, ROWS, columns, self.writes), self.device)
        return self.captured(torch.full((), scale, device=self.device), *parted(there))


def parted(batch: Batch) -> tuple[Any, ...]:
    """A batch as the inputs of a graph: tensors, and what belongs to it as shapes do."""
    return tuple(batch.columns), *(part for column in batch.columns.values() for part in column)


def joined(parts: Sequence[Any]) -> Batch:
    names, *rest = parts
    width = len(Column._fields)
    return Batch({name: Column(*rest[width * at : width * (at + 1)]) for at, name in enumerate(names)})
