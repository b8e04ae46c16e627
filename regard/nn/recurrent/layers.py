"""Recurrent layers: two directions, deep stacks, dropout that stays the same over time."""

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import UserError
from regard.nn.dropout import Dropout, LockedDropout
from regard.nn.lengths import length_mask
from regard.nn.linear import Projection
from regard.nn.recurrent.cell import RECURRENT, Cell, CellList, CellState
from regard.nn.recurrent.connections import Attend, Connection, Outputs, connection_over
from regard.nn.recurrent.scan import reverse_within, scan
from regard.nn.recurrent.tape import TapeCell, tape_attention_weights
from regard.nn.transformer.experts import Between

States = Sequence[CellState]  # one a direction
LayerWeights = Float[Tensor, "heads time time"]  # of one row


def recurrent_mask(cell: Cell, like: Float[Tensor, "batch *rest"], rate: float, training: bool) -> Tensor | None:
    """One mask a sequence for what the past gives  (Gal & Ghahramani 2016)."""
    if rate == 0 or not training:
        return None
    ones = torch.ones(len(like), cell.hidden_size, device=like.device)
    return torch.nn.functional.dropout(ones, rate)


def weight_dropped(cell: Cell, rate: float) -> Cell:
    """The same cell for one pass, with some of its recurrent weights 0  (Wan et al. 2013: DropConnect; Merity et al. 2018)."""
    if rate == 0 or not cell.training:
        return cell
    maps = {name: map for name in RECURRENT.values() if (map := getattr(cell, name, None)) is not None}
    if not maps:
        raise UserError(f"weight_drop is for cells with a matrix U for h_t-1, and {type(cell).__name__} has none")
    dropped = copy.copy(cell)
    vars(dropped)["_modules"] = {name: module for name, module in cell._modules.items() if name not in maps}
    vars(dropped).update(
        {name: Projection(torch.nn.functional.dropout(map.weight, rate), map.bias) for name, map in maps.items()}
    )
    return dropped


FROM_THE_RIGHT = {1: (False,), -1: (True,), 2: (False, True)}  # which cells of a layer read so, by its directions


class RecurrentLayer(nn.Module):
    """h_t from the left (-1: from the right), or from both sides where there are two directions, side by side."""

    def __init__(
        self, cell: type[Cell], input_size: int, hidden_size: int, directions: int = 1, layer_norm: bool = False,
        recurrent_dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if directions not in FROM_THE_RIGHT:
            raise UserError(f"a recurrent layer has one or two directions, or -1: from the right (given: {directions})")
        self.recurrent_dropout, self.from_the_right = recurrent_dropout, FROM_THE_RIGHT[directions]
        self.cells = CellList(cell(input_size, hidden_size, layer_norm) for _ in self.from_the_right)
        self.output_size = len(self.cells) * hidden_size

    def forward(
        self,
        inputs: Float[Tensor, "batch time input"],
        lengths: Int[Tensor, "batch"] | None = None,
        states: States | None = None,
    ) -> tuple[Outputs, States]:
        """All states, and each direction's state after the last input it read."""
        whole = torch.full((len(inputs),), inputs.shape[1], device=inputs.device) if lengths is None else lengths
        outputs, last = [], []
        for direction, (cell, turned) in enumerate(zip(self.cells, self.from_the_right, strict=True)):
            read = reverse_within(inputs, whole) if turned else inputs
            mask = recurrent_mask(cell, inputs, self.recurrent_dropout, self.training)
            states_of, end = scan(cell, read, None if states is None else states[direction], lengths, mask)
            outputs.append(reverse_within(states_of, whole) if turned else states_of)
            last.append(end)
        return torch.cat(outputs, dim=-1) if len(outputs) > 1 else outputs[0], last

    def tape_weights(self, inputs: Float[Tensor, "1 time input"]) -> LayerWeights:
        """Where cells that attend to their past looked, a head for each direction."""
        found = [
            tape_attention_weights(cell, inputs.flip(1)).flip(1, 2) if turned else tape_attention_weights(cell, inputs)
            for cell, turned in zip(self.cells, self.from_the_right, strict=True)
            if isinstance(cell, TapeCell)
        ]
        return torch.cat(found)


class RecurrentOutput(NamedTuple):
    """What the top gives at every step, the states of each layer and direction at each row's end, and what experts cost."""

    outputs: Outputs
    last: Sequence[States]
    cost: Float[Tensor, ""] | None = None


class RecurrentStack(nn.Module):
    """Layers upon layers. Where a text goes on in the next batch, hand the states over (`detach_state` cuts the gradient).

    `directions` is one number for all layers, or one for each. `experts` makes those that stand under layer `experts_under`
    (counted from 1) for the size of what passes there.
    """

    def __init__(
        self, cell: type[Cell], input_size: int, hidden_size: int, layers: int = 1, directions: int | Sequence[int] = 1,
        dropout: float = 0.0, locked: bool = False, recurrent_dropout: float = 0.0, layer_norm: bool = False,
        connection: type[Connection] = Connection, connect_from: int = 1, connect_top: bool = False,
        experts: Callable[[int], Between] | None = None, experts_under: int = 0,
        attention: Attend | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.dropout = LockedDropout(dropout) if locked else Dropout(dropout)
        self.layers, self.connections, self.experts_under = nn.ModuleList(), nn.ModuleList(), experts_under
        self.output_size, self.between = input_size, None
        for depth, ways in enumerate([directions] * layers if isinstance(directions, int) else directions, start=1):
            if experts is not None and depth == experts_under:
                self.between = experts(self.output_size)
            layer = RecurrentLayer(cell, self.output_size, hidden_size, ways, layer_norm, recurrent_dropout)
            kind = connection_over(depth, layers, connection, connect_from, connect_top)
            over = kind(self.output_size, layer.output_size, layer.cells[0].width, ways, depth == layers, attention)
            self.layers.append(layer)
            self.connections.append(over)
            self.output_size = over.size

    def forward(
        self,
        inputs: Float[Tensor, "batch time input"],
        lengths: Int[Tensor, "batch"] | None = None,
        states: Sequence[States] | None = None,
    ) -> tuple[Outputs, Sequence[States]]:
        """As `run_layers`, without the cost."""
        return self.run_layers(inputs, lengths, states)[:2]

    def run_layers(
        self,
        inputs: Float[Tensor, "batch time input"],
        lengths: Int[Tensor, "batch"] | None = None,
        states: Sequence[States] | None = None,
    ) -> RecurrentOutput:
        if states is not None and any(connection.attends for connection in self.connections):
            raise UserError("layers that attend to the states below read whole texts: begin each without earlier states")
        last, cost = list[States](), None
        for depth, (layer, connection) in enumerate(zip(self.layers, self.connections, strict=True)):
            inputs, here = self.enter(depth, inputs, lengths)
            cost = cost if here is None else here
            outputs, end = layer(inputs, lengths, None if states is None else states[depth])
            inputs = connection(inputs, outputs, connection.share(layer.cells, inputs), lengths)  # type: ignore[operator]
            last.append(end)
        return RecurrentOutput(inputs, last, cost)

    def enter(self, depth: int, inputs: Outputs, lengths: Int[Tensor, "batch"] | None) -> tuple[Outputs, Tensor | None]:
        """What a layer reads, by way of the experts if they stand under it; and what these cost."""
        cost = None
        if self.between is not None and depth + 1 == self.experts_under:
            inputs, use = self.between(inputs, None if lengths is None else length_mask(lengths, inputs.shape[1]))
            cost = self.between.experts.cost(use)
        return self.dropout(inputs), cost

    def attention_weights(self, inputs: Float[Tensor, "1 time input"]) -> list[tuple[int, LayerWeights]]:
        """Of one whole row, layer by layer (from 1): where cells looked in their past, and connections in the states below."""
        found = list[tuple[int, LayerWeights]]()
        for depth, (layer, connection) in enumerate(zip(self.layers, self.connections, strict=True)):
            inputs, _ = self.enter(depth, inputs, None)
            if isinstance(layer.cells[0], TapeCell):  # type: ignore[index]
                found.append((depth + 1, layer.tape_weights(inputs)))  # type: ignore[operator]
            outputs, _ = layer(inputs)
            if connection.attends:
                found.append((depth + 1, connection.weights(outputs)[0]))  # type: ignore[operator]
            inputs = connection(inputs, outputs, connection.share(layer.cells, inputs))  # type: ignore[operator]
        return found


class Columns(nn.Module):
    """Stacks that read the same words and never each other; what their tops give lies side by side."""

    def __init__(self, columns: Iterable[RecurrentStack]) -> None:
        super().__init__()
        self.columns = nn.ModuleList(columns)
        self.output_size = sum(column.output_size for column in self.columns)  # type: ignore[misc]

    @property
    def layers(self) -> list[nn.Module]:
        return [layer for column in self.columns for layer in column.layers]  # type: ignore[union-attr]

    @property
    def dropout(self) -> nn.Module:
        return self.columns[0].dropout  # type: ignore[return-value]

    def attention_weights(self, inputs: Float[Tensor, "1 time input"]) -> list[tuple[int, LayerWeights]]:
        """The columns' heads side by side."""
        each = zip(*(column.attention_weights(inputs) for column in self.columns), strict=True)  # type: ignore[operator]
        return [(alike[0][0], torch.cat([weights for _, weights in alike])) for alike in each]

    def run_layers(
        self, inputs: Float[Tensor, "batch time input"], lengths: Int[Tensor, "batch"] | None = None
    ) -> RecurrentOutput:
        outputs, last, costs = zip(*(column.run_layers(inputs, lengths) for column in self.columns), strict=True)  # type: ignore[operator]
        known = [cost for cost in costs if cost is not None]
        cost = torch.stack(known).sum() if known else None
        return RecurrentOutput(torch.cat(outputs, dim=-1), [end for ends in last for end in ends], cost)
