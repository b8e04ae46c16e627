"""The source network of ByteNet: dilated convolutions, unfolded to as many positions as a target may need."""

import math
from typing import Annotated, Literal

from jaxtyping import Float, Int, Shaped
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.bounds import DEEPEST, Depth, Size, Width
from regard.data.fields import Shape
from regard.models.encoders.recurrent import spread_words
from regard.models.inputs import InputConfig, build_input
from regard.models.interface import Encoder, Memory
from regard.nn.convolution import Convolution, DilatedBlock
from regard.nn.dropout import Dropout
from regard.nn.lengths import length_mask
from regard.recipe import Rate, Section


class ByteNetConfig(Section):
    """What both sides of ByteNet are told."""

    embedding_size: Size = 256
    hidden_size: Size = 128  # inside a block; twice as many between blocks
    width: Width = 3
    dilations: Annotated[tuple[Width, ...], Field(min_length=1, max_length=100)] = (1, 2, 4, 8, 16)  # of the blocks of one set
    sets: Depth = 2
    dropout: Rate = 0.0  # on embeddings, on what a block adds, and under the logits

    @model_validator(mode="after")
    def not_too_deep(self) -> "ByteNetConfig":
        if (blocks := self.sets * len(self.dilations)) > DEEPEST:
            raise ValueError(f"{self.sets} sets of {len(self.dilations)} blocks are {blocks:,}; at most {DEEPEST:,}")
        return self

    def build_blocks(self) -> nn.ModuleList:
        dilations = self.sets * self.dilations
        return nn.ModuleList(DilatedBlock(self.hidden_size, self.width, dilation, self.dropout) for dilation in dilations)


class ByteNetEncoderConfig(ByteNetConfig):
    kind: Literal["bytenet"] = "bytenet"
    input: InputConfig = None
    stretch: Annotated[float, Field(ge=1, le=100)] = 1.2  # a source of n words has ceil(stretch n + extra) states
    extra: Annotated[int, Field(ge=0, le=65_536)] = 0


class ByteNetEncoder(Encoder):
    """|t̂| = a |s| + b  (Kalchbrenner et al. 2016, section 3.2): places after the last word hold nothing at first."""

    Config = ByteNetEncoderConfig

    def __init__(self, config: ByteNetEncoderConfig, shape: Shape) -> None:
        super().__init__()
        self.memory_size = self.summary_size = 2 * config.hidden_size
        self.stretch, self.extra = config.stretch, config.extra
        self.embed = build_input(config.input, shape, config.embedding_size, spread_words)
        self.enter = Convolution(config.embedding_size, 2 * config.hidden_size, variance=float(config.embedding_size))
        self.blocks = config.build_blocks()
        self.dropout = Dropout(config.dropout)

    def tokens_for(self, states: int) -> int:
        most = int((states - self.extra) / self.stretch)
        return most if math.ceil(self.stretch * most + self.extra) <= states else most - 1

    def unfold(self, words: Float[Tensor, "batch source size"]) -> Float[Tensor, "batch unfolded size"]:
        source = words.shape[1]
        return nn.functional.pad(words, (0, 0, 0, math.ceil(self.stretch * source + self.extra) - source))

    def forward(self, values: Shaped[Tensor, "batch *values"], lengths: Int[Tensor, "batch"] | None = None) -> Memory:
        read, lengths = self.read(values, lengths)
        known = length_mask(lengths, read.shape[1])
        words = self.dropout(read).masked_fill(~known[..., None], 0.0)
        states = self.enter(self.unfold(words))
        ends = (self.stretch * lengths.double() + self.extra).ceil().long()  # as math.ceil has it
        visible = length_mask(ends, states.shape[1])
        for block in self.blocks:
            states = block(states, visible)
        return Memory(states.masked_fill(~visible[..., None], 0.0), visible)
