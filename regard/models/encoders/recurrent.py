"""The recurrent encoder: deep, one- or two-directional, any cell."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import torch
from jaxtyping import Int, Shaped
from pydantic import model_validator
from torch import Tensor, nn

from regard.bounds import Depth, Size
from regard.data.fields import Shape
from regard.models.connections import ConnectedLayersConfig, places_below
from regard.models.experts import ExpertsBetween
from regard.models.inputs import InputConfig, build_input
from regard.models.interface import AttentionWeights, Encoder, Memory
from regard.models.limits import Limit
from regard.nn.lengths import length_mask
from regard.nn.linear import Linear
from regard.nn.recurrent.cells import CELLS, Cell
from regard.nn.recurrent.connections import CONNECTIONS
from regard.nn.recurrent.layers import Columns, RecurrentStack, States
from regard.nn.recurrent.scan import reverse_within
from regard.nn.recurrent.tape import TapeCell
from regard.recipe import Rate, choose, name_of


class RecurrentEncoderConfig(ConnectedLayersConfig):
    kind: Literal["recurrent"] = "recurrent"
    input: InputConfig = None
    cell: Annotated[str, name_of(CELLS, "cell")] = "gru"
    embedding_size: Size = 256
    hidden_size: Size = 256  # of each direction
    layers: Depth = 1
    bidirectional: bool | Literal["first", "interleaved"] = True  # DIRECTIONS
    reverse: bool = False  # read the source from its end (Sutskever et al. 2014, section 3.3)
    memory_size: Size | None = None  # of each state as the decoder reads it, projected; as it is unless given
    dropout: Rate = 0.0
    locked_dropout: bool = False  # one mask for all steps of a sequence
    recurrent_dropout: Rate = 0.0  # on what the past gives, one mask a sequence
    layer_norm: bool = False  # inside the cell
    experts: ExpertsBetween | None = None  # in each column

    @model_validator(mode="after")
    def experts_have_a_place(self) -> "RecurrentEncoderConfig":
        if self.experts is not None:
            self.experts.place(self.layers)
        return self

    @property
    def last_states(self) -> list[str] | None:
        """What each layer ends with, in words; its directions lie side by side. A tape is nothing to begin another with."""
        if issubclass(choose(CELLS, self.cell, "cell"), TapeCell):
            return None
        depths = zip(*DIRECTIONS[self.bidirectional](self.layers), strict=True)
        return [f"{self.cell} of {self.hidden_size * sum(map(abs, ways))}" for ways in depths]


def interleaved(layers: int) -> list[list[int]]:
    """Each layer of a column reads the other way than the one below; the second column begins from the right."""
    column = [(-1) ** depth for depth in range(layers)]
    return [column, [-way for way in column]]


# The directions of the layers of each column (2: both ways, -1: from the right)
DIRECTIONS: dict[bool | str, Callable[[int], list[list[int]]]] = {
    True: lambda layers: [[2] * layers],
    False: lambda layers: [[1] * layers],
    "first": lambda layers: [[2] + [1] * (layers - 1)],  # Wu et al. 2016, section 3.2
    "interleaved": interleaved,  # Zhou et al. 2016, section 3.2
}


def stack_of(config: RecurrentEncoderConfig, cell: type[Cell], directions: list[int]) -> RecurrentStack:
    experts, under = (None, 0) if config.experts is None else (config.experts.between, config.experts.place(config.layers))
    return RecurrentStack(
        cell, config.embedding_size, config.hidden_size, config.layers, directions, config.dropout, config.locked_dropout,
        config.recurrent_dropout, config.layer_norm, choose(CONNECTIONS, config.connections, "connection"),
        config.connect_from, config.connect_top, experts, under, config.attend,
    )  # fmt: skip


def spread_words(vocabulary: int, size: int) -> nn.Embedding:
    """Vectors of length about 1."""
    words = nn.Embedding(vocabulary, size)
    nn.init.normal_(words.weight, std=size**-0.5)
    return words


class RecurrentEncoder(Encoder):
    Config = RecurrentEncoderConfig

    def __init__(self, config: RecurrentEncoderConfig, shape: Shape) -> None:
        super().__init__()
        cell = choose(CELLS, config.cell, "cell")
        self.reverse = config.reverse
        self.embed = build_input(config.input, shape, config.embedding_size, spread_words)
        columns = [stack_of(config, cell, directions) for directions in DIRECTIONS[config.bidirectional](config.layers)]
        self.stack = columns[0] if len(columns) == 1 else Columns(columns)
        self.project = None if config.memory_size is None else Linear(self.stack.output_size, config.memory_size, bias=False)
        self.memory_size = config.memory_size or self.stack.output_size
        self.summary_size = cell.ends * sum(layer.output_size for layer in self.stack.layers)  # type: ignore[misc]

    @property
    def limit(self) -> Limit | None:
        return places_below(self.stack)

    def forward(self, values: Shaped[Tensor, "batch *values"], lengths: Int[Tensor, "batch"] | None = None) -> Memory:
        """All states of the top layer, and what every layer and direction ended with."""
        words, lengths = self.read(values, lengths)
        states, last, cost = self.stack.run_layers(reverse_within(words, lengths) if self.reverse else words, lengths)
        if self.reverse:
            states = reverse_within(states, lengths)  # state j stays beside word j
        visible = length_mask(lengths, words.shape[1])
        states = self.stack.dropout(states)
        states = (states if self.project is None else self.project(states)).masked_fill(~visible[..., None], 0.0)
        return Memory(states, visible, torch.cat(self.summary(last), dim=-1), cost=cost, last=last)

    def attention_weights(self, values: Shaped[Tensor, "1 *values"]) -> list[AttentionWeights]:
        """Of cells that attend to their past, a head for each direction; of layers that attend to the states below them."""
        found = self.stack.attention_weights(self.embed(values.flip(1) if self.reverse else values))
        return [
            AttentionWeights("encoder_recurrence", layer, weights.flip(1, 2) if self.reverse else weights)
            for layer, weights in found
        ]

    def summary(self, last: Sequence[States]) -> list[Tensor]:
        cells = [cell for layer in self.stack.layers for cell in layer.cells]  # type: ignore[union-attr]
        ends = [end for layer in last for end in layer]
        return [part for cell, end in zip(cells, ends, strict=True) for part in cell.end(end)]
