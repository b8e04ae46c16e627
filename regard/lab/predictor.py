"""A model that foretells the next token from those before it: embedding, cell, output layer."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.errors import UserError
from regard.lab.windows import IGNORE
from regard.models.interface import PLAIN, Loss, LossOptions, Model
from regard.nn.cross_entropy import linear_cross_entropy
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.scan import scan

Outputs = Float[Tensor, "batch time hidden"]
Targets = Int[Tensor, "batch time"]


def carry(state: Any, first: Any, window: int) -> Any:
    """A state for the next window, which the gradient does not leave. Of what has grown since the `first` state, as the
    tape of a cell that attends to its past does, the last `window` positions: there is no end to a stream."""
    parts = (new if new.shape == old.shape else new[:, -window:] for new, old in zip(state, first, strict=True))
    return type(state)(*(part.detach() for part in parts))


class Predictor(Model):
    """p(x_t+1 | x_1 .. x_t) = softmax(O h_t + b), h_t = cell(E x_t, h_t-1); the embedding is as wide as the state."""

    writes = "target"
    carries_state = True

    def __init__(self, cell: str, vocabulary: int, hidden_size: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, hidden_size)
        self.cell = CELLS[cell](hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, vocabulary)
        self.state: Any = None  # with which the last window ended

    def forward(self, inputs: Int[Tensor, "batch time"], state: Any = None) -> tuple[Outputs, Any]:
        return scan(self.cell, self.embed(inputs), state)

    def read(self, window: Batch) -> Outputs:
        """The state goes on from the last window, if this one has lanes that do."""
        inputs: Tensor = window["source"].values
        outputs: Tensor
        outputs, state = self(inputs, None if window.get("lanes") is None else self.state)
        self.state = carry(state, self.cell.zero_state(outputs), inputs.shape[1])
        return outputs

    def part_names(self, options: LossOptions) -> tuple[str, ...]:
        if options != PLAIN:
            raise UserError("a cell is trained on its likelihood alone: no label smoothing, sampling or penalties")
        return ("loss",)

    def loss(self, batch: Batch, options: LossOptions = PLAIN) -> Loss:
        targets: Tensor = batch[self.writes].values
        total = self.nats(self.read(batch), targets)
        return Loss(total, {"loss": total.detach()}, (targets != IGNORE).sum())

    def nats(self, outputs: Outputs, targets: Targets) -> Float[Tensor, ""]:
        """Σ -log p over what is asked."""
        return linear_cross_entropy(outputs, self.output, targets, IGNORE)

    def hits(self, outputs: Outputs, targets: Targets) -> Int[Tensor, ""]:
        """How often the likeliest token is the true one."""
        asked = targets != IGNORE
        guesses: Tensor = self.output(outputs[asked]).argmax(dim=-1)
        return (guesses == targets[asked]).sum()

    @torch.no_grad()
    def scale(self, factor: float) -> None:
        """Multiply every matrix; biases stay as the cell made them."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                parameter.mul_(factor)
