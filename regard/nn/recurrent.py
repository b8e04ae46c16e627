"""Recurrent layers: two directions, deep stacks and what connects them, dropout that stays the same over time."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import UserError
from regard.nn.cell import Cell, CellList, CellState
from regard.nn.dropout import Dropout, LockedDropout
from regard.nn.scan import reverse_within, scan
from regard.nn.shared import Linear, shared

Outputs = Float[Tensor, "batch time size"]
States = Sequence[CellState]  # one a direction


class Connection(nn.Module):
    """What goes from one layer to the next: h_k  (Schmidhuber 1992, El Hihi & Bengio 1996)."""

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()

    def bind(self) -> Callable[[Tensor, Tensor], Tensor]:
        """(the layer's input, its output) -> the next layer's input, as a function for one pass."""
        return lambda inputs, outputs: outputs

    def forward(
        self, inputs: Float[Tensor, "*rows input"], outputs: Float[Tensor, "*rows size"]
    ) -> Float[Tensor, "*rows size"]:
        return self.bind()(inputs, outputs)


class Residual(Connection):
    """h_k + x_k, where they have one size  (Wu et al. 2016, section 3.1)."""

    def bind(self) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda inputs, outputs: outputs + inputs if inputs.shape == outputs.shape else outputs


class FastForward(Connection):
    """f_{k+1} = V [h_k; f_k]: a way from the words to the top that is linear  (Zhou et al. 2016, eq. 5)."""

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__(input_size, output_size)
        self.join = Linear(input_size + output_size, output_size)

    def bind(self) -> Callable[[Tensor, Tensor], Tensor]:
        join = shared(self.join)
        return lambda inputs, outputs: join(torch.cat([outputs, inputs.to(outputs.dtype)], dim=-1))


CONNECTIONS: dict[str, type[Connection]] = {"plain": Connection, "residual": Residual, "fast_forward": FastForward}


def recurrent_mask(cell: Cell, like: Float[Tensor, "batch *rest"], rate: float, training: bool) -> Tensor | None:
    """One mask a sequence for what the past gives  (Gal & Ghahramani 2016)."""
    if rate == 0 or not training:
        return None
    ones = torch.ones(len(like), cell.hidden_size, device=like.device)
    return torch.nn.functional.dropout(ones, rate)


class RecurrentLayer(nn.Module):
    """h_t from the left, and from the right where there are two directions, side by side."""

    def __init__(
        self, cell: type[Cell], input_size: int, hidden_size: int, directions: int = 1, layer_norm: bool = False,
        recurrent_dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if directions not in (1, 2):
            raise UserError(f"a recurrent layer has one or two directions (given: {directions})")
        self.recurrent_dropout = recurrent_dropout
        self.cells = CellList(cell(input_size, hidden_size, layer_norm) for _ in range(directions))

    def forward(
        self,
        inputs: Float[Tensor, "batch time input"],
        lengths: Int[Tensor, "batch"] | None = None,
        states: States | None = None,
    ) -> tuple[Outputs, States]:
        """All states, and each direction's state after the last input it read."""
        whole = torch.full((len(inputs),), inputs.shape[1], device=inputs.device) if lengths is None else lengths
        outputs, last = [], []
        for direction, cell in enumerate(self.cells):
            read = reverse_within(inputs, whole) if direction else inputs
            mask = recurrent_mask(cell, inputs, self.recurrent_dropout, self.training)
            states_of, end = scan(cell, read, None if states is None else states[direction], lengths, mask)
            outputs.append(reverse_within(states_of, whole) if direction else states_of)
            last.append(end)
        return torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0], last


class RecurrentStack(nn.Module):
    """Layers upon layers. Where a text goes on in the next batch, hand the states over (`detach_state` cuts the gradient)."""

    def __init__(
        self, cell: type[Cell], input_size: int, hidden_size: int, layers: int = 1, directions: int = 1,
        dropout: float = 0.0, locked: bool = False, recurrent_dropout: float = 0.0, layer_norm: bool = False,
        connection: type[Connection] = Connection,
    ) -> None:  # fmt: skip
        super().__init__()
        self.output_size = directions * hidden_size
        sizes = [input_size] + [self.output_size] * (layers - 1)
        self.dropout = LockedDropout(dropout) if locked else Dropout(dropout)
        self.layers = nn.ModuleList(
            RecurrentLayer(cell, size, hidden_size, directions, layer_norm, recurrent_dropout) for size in sizes
        )
        self.connections = nn.ModuleList(connection(size, self.output_size) for size in sizes[:-1])

    def forward(
        self,
        inputs: Float[Tensor, "batch time input"],
        lengths: Int[Tensor, "batch"] | None = None,
        states: Sequence[States] | None = None,
    ) -> tuple[Outputs, Sequence[States]]:
        """What the top gives at every step, and the states of each layer and direction at each row's end."""
        last, outputs = [], inputs
        for depth, layer in enumerate(self.layers):
            inputs = self.dropout(self.connections[depth - 1](inputs, outputs) if depth else inputs)
            outputs, end = layer(inputs, lengths, None if states is None else states[depth])
            last.append(end)
        return outputs, last
