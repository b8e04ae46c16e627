"""The convolutional encoder of ConvS2S: words in their places, and gated convolutions one over the other."""

from typing import Annotated, Literal

import torch
from jaxtyping import Int, Shaped
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.bounds import DEEPEST, Depth, Size, Width
from regard.data.fields import Shape
from regard.models.inputs import InputConfig, build_input
from regard.models.interface import Encoder, Memory
from regard.models.limits import Limit, limit
from regard.models.names import Renamed
from regard.nn.convolution import Convolution, GatedBlock
from regard.nn.dropout import Dropout
from regard.nn.lengths import length_mask
from regard.nn.pooling import mean_over
from regard.nn.positions import POSITIONS, Positions
from regard.recipe import Rate, Section, choose, name_of

SPREAD = 0.1  # of words and places at the start (Gehring et al. 2017, section 3.5)


def read_positions() -> dict[str, type[Positions]]:
    """Those that are part of what is read."""
    return {name: kind for name, kind in POSITIONS.items() if kind.absolute or name == "none"}


class Layers(Renamed):
    """Some layers of one kind."""

    hidden_size: Size
    width: Width = 3
    times: Depth = 1


class ConvolutionalConfig(Section):
    """What both sides of ConvS2S are told."""

    embedding_size: Size = 256
    hidden_size: Size = 256  # of every layer, if `layers` is their number
    width: Width = 3  # likewise: positions that one convolution reads
    layers: Depth | Annotated[tuple[Layers, ...], Field(min_length=1, max_length=1_000)] = 4
    positions: Annotated[str, name_of(read_positions, "kind of positions")] = "learned"
    longest: Size = 1024  # places that learned positions know
    dropout: Rate = 0.0  # on embeddings, on what convolutions read, and under the logits
    weight_norm: bool = False

    @model_validator(mode="after")
    def not_too_deep(self) -> "ConvolutionalConfig":
        if not isinstance(self.layers, int) and sum(some.times for some in self.layers) > DEEPEST:
            raise ValueError(f"at most {DEEPEST:,} layers")
        return self

    @property
    def blocks(self) -> list[tuple[int, int]]:
        """Size and width of each layer."""
        if isinstance(self.layers, int):
            return [(self.hidden_size, self.width)] * self.layers
        return [(some.hidden_size, some.width) for some in self.layers for _ in range(some.times)]

    def build_positions(self, words: nn.Module) -> Positions:
        """Vectors of places, drawn together with those of words; what reads no words is as its input drew it."""
        places = choose(read_positions(), self.positions, "kind of positions")(self.embedding_size, longest=self.longest)
        for parameter in (*(words.parameters() if isinstance(words, nn.Embedding) else ()), *places.parameters()):
            nn.init.normal_(parameter, std=SPREAD)
        return places

    def build_ends(self) -> tuple[Convolution, Convolution]:
        """From embeddings to the first layer, and from the last one back."""
        first, last = self.blocks[0][0], self.blocks[-1][0]
        enter = Convolution(self.embedding_size, first, variance=1 - self.dropout, weight_norm=self.weight_norm)
        return enter, Convolution(last, self.embedding_size, weight_norm=self.weight_norm)

    @property
    def inputs(self) -> list[int]:
        """What each layer reads."""
        return [self.blocks[0][0], *(size for size, _ in self.blocks[:-1])]


class ConvolutionalEncoderConfig(ConvolutionalConfig):
    kind: Literal["convolutional"] = "convolutional"
    input: InputConfig = None


class ConvolutionalEncoder(Encoder):
    """Memory holds [z_j; e_j]: what each word has become, and what it was when it was read."""

    Config = ConvolutionalEncoderConfig

    def __init__(self, config: ConvolutionalEncoderConfig, shape: Shape) -> None:
        super().__init__()
        self.memory_size, self.summary_size = 2 * config.embedding_size, config.embedding_size
        self.embed = build_input(config.input, shape, config.embedding_size, nn.Embedding)
        self.positions = config.build_positions(self.embed)
        self.enter, self.leave = config.build_ends()
        self.blocks = nn.ModuleList(
            GatedBlock(inputs, size, width, config.dropout, config.weight_norm)
            for inputs, (size, width) in zip(config.inputs, config.blocks, strict=True)
        )
        self.dropout = Dropout(config.dropout)

    @property
    def limit(self) -> Limit | None:
        return limit(self.positions.known_places, "longest")

    def forward(self, values: Shaped[Tensor, "batch *values"], lengths: Int[Tensor, "batch"] | None = None) -> Memory:
        read, lengths = self.read(values, lengths)
        self.positions.check(read.shape[1])
        places = torch.arange(read.shape[1], device=read.device)
        visible = length_mask(lengths, read.shape[1])
        words = self.dropout(self.positions.embed(read, places[None]))
        states = self.enter(words)
        for block in self.blocks:
            states = block(states, visible)
        states = self.leave(states)
        both = torch.cat([states, words.to(states.dtype)], dim=-1).masked_fill(~visible[..., None], 0.0)
        return Memory(both, visible, mean_over(states, visible))
