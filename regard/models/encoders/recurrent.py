"""The recurrent encoder: deep, one- or two-directional, any cell."""

from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.models.interface import Encoder, Memory
from regard.nn.cells import CELLS, CellList
from regard.nn.dropout import Dropout
from regard.nn.scan import reverse_within, scan
from regard.recipe import Positive, Rate, Section, choose, name_of


class RecurrentEncoderConfig(Section):
    kind: Literal["recurrent"] = "recurrent"
    cell: Annotated[str, name_of(CELLS, "cell")] = "gru"
    embedding_size: Positive = 256
    hidden_size: Positive = 256  # of each direction
    layers: Positive = 1
    bidirectional: bool = True
    reverse: bool = False  # read the source from its end (Sutskever et al. 2014, section 3.3)
    dropout: Rate = 0.0


class RecurrentLayer(nn.Module):
    """h_t from the left, and from the right where there are two directions, side by side."""

    def __init__(self, cell: str, input_size: int, hidden_size: int, directions: int) -> None:
        super().__init__()
        self.cells = CellList(choose(CELLS, cell, "cell")(input_size, hidden_size) for _ in range(directions))

    def forward(
        self, inputs: Float[Tensor, "batch source input"], lengths: Int[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch source size"], Float[Tensor, "batch size"]]:
        """All states, and each direction's state after the last word it read. Padding stands after the end in both
        directions, so nothing before it depends on it."""
        forward, *backward = self.cells
        rows, last = torch.arange(len(inputs), device=inputs.device), lengths - 1
        outputs = [scan(forward, inputs)[0]]
        final = [outputs[0][rows, last]]
        for cell in backward:
            turned = scan(cell, reverse_within(inputs, lengths))[0]
            final.append(turned[rows, last])
            outputs.append(reverse_within(turned, lengths))
        return torch.cat(outputs, dim=-1), torch.cat(final, dim=-1)


class RecurrentEncoder(Encoder):
    Config = RecurrentEncoderConfig

    def __init__(self, config: RecurrentEncoderConfig, vocabulary: int) -> None:
        super().__init__()
        directions = 2 if config.bidirectional else 1
        self.memory_size = directions * config.hidden_size
        self.summary_size = config.layers * self.memory_size
        self.reverse = config.reverse
        self.embed = nn.Embedding(vocabulary, config.embedding_size)
        nn.init.normal_(self.embed.weight, std=config.embedding_size**-0.5)
        self.dropout = Dropout(config.dropout)
        sizes = [config.embedding_size] + [self.memory_size] * (config.layers - 1)
        self.layers = nn.ModuleList(RecurrentLayer(config.cell, size, config.hidden_size, directions) for size in sizes)

    def forward(self, tokens: Int[Tensor, "batch source"], lengths: Int[Tensor, "batch"]) -> Memory:
        states = self.embed(tokens)
        if self.reverse:
            states = reverse_within(states, lengths)
        visible = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        final = []
        for layer in self.layers:
            states, last = layer(self.dropout(states), lengths)
            final.append(last)
        if self.reverse:
            states = reverse_within(states, lengths)  # state j stays beside word j
        states = self.dropout(states).masked_fill(~visible[..., None], 0.0)
        return Memory(states, visible, torch.cat(final, dim=-1))
