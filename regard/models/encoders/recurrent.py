"""The recurrent encoder: deep, one- or two-directional, any cell."""

from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.interface import Encoder, Memory
from regard.nn.cells import CELLS
from regard.nn.recurrent import CONNECTIONS, RecurrentStack
from regard.nn.scan import reverse_within
from regard.nn.tape import TapeCell, own_attention
from regard.recipe import Positive, Rate, Section, choose, name_of


class RecurrentEncoderConfig(Section):
    kind: Literal["recurrent"] = "recurrent"
    cell: Annotated[str, name_of(CELLS, "cell")] = "gru"
    embedding_size: Positive = 256
    hidden_size: Positive = 256  # of each direction
    layers: Positive = 1
    bidirectional: bool = True
    reverse: bool = False  # read the source from its end (Sutskever et al. 2014, section 3.3)
    connections: Annotated[str, name_of(CONNECTIONS, "connection")] = "plain"  # between layers
    dropout: Rate = 0.0
    locked_dropout: bool = False  # one mask for all steps of a sequence
    recurrent_dropout: Rate = 0.0  # on what the past gives, one mask a sequence
    layer_norm: bool = False  # inside the cell


class RecurrentEncoder(Encoder):
    Config = RecurrentEncoderConfig

    def __init__(self, config: RecurrentEncoderConfig, vocabulary: int) -> None:
        super().__init__()
        cell = choose(CELLS, config.cell, "cell")
        directions = 2 if config.bidirectional else 1
        self.memory_size = directions * config.hidden_size
        self.summary_size = config.layers * cell.ends * self.memory_size
        self.reverse = config.reverse
        self.embed = nn.Embedding(vocabulary, config.embedding_size)
        nn.init.normal_(self.embed.weight, std=config.embedding_size**-0.5)
        self.stack = RecurrentStack(
            cell, config.embedding_size, config.hidden_size, config.layers, directions, config.dropout, config.locked_dropout,
            config.recurrent_dropout, config.layer_norm, choose(CONNECTIONS, config.connections, "connection"),
        )  # fmt: skip

    def forward(self, tokens: Int[Tensor, "batch source"], lengths: Int[Tensor, "batch"]) -> Memory:
        """All states of the top layer, and what every layer and direction ended with."""
        words = self.embed(tokens)
        states, last = self.stack(reverse_within(words, lengths) if self.reverse else words, lengths)
        if self.reverse:
            states = reverse_within(states, lengths)  # state j stays beside word j
        visible = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        states = self.stack.dropout(states).masked_fill(~visible[..., None], 0.0)
        return Memory(states, visible, torch.cat(self.summary(last), dim=-1))

    def past(self, tokens: Int[Tensor, "batch source"]) -> Float[Tensor, "batch source source"] | None:
        """Of the lowest layer: words before a word by the direction that comes from the left, words after it by the other."""
        cells = list(self.stack.layers[0].cells)  # type: ignore[arg-type]
        if not isinstance(cells[0], TapeCell):
            return None
        words = self.embed(tokens.flip(1) if self.reverse else tokens)
        looks = [own_attention(cells[0], words), *(own_attention(cell, words.flip(1)).flip(1, 2) for cell in cells[1:])]
        both = torch.stack(looks).sum(0)
        return both.flip(1, 2) if self.reverse else both

    def summary(self, last: list[list[object]]) -> list[Tensor]:
        cells = [cell for layer in self.stack.layers for cell in layer.cells]  # type: ignore[union-attr]
        ends = [end for layer in last for end in layer]
        return [part for cell, end in zip(cells, ends, strict=True) for part in cell.end(end)]
