"""The encoder that adds nothing: memory holds what its input gives, as Show, Attend and Tell reads a grid of regions."""

from typing import Annotated, Literal

from jaxtyping import Int, Shaped
from torch import Tensor

from regard.bounds import Size
from regard.data.fields import Shape
from regard.models.attention import PoolingAttentionConfig
from regard.models.encoders.recurrent import spread_words
from regard.models.inputs import InputConfig, build_input
from regard.models.interface import AttentionWeights, Encoder, Memory
from regard.models.looking import pooling_weights
from regard.nn.dropout import Dropout
from regard.nn.lengths import length_mask
from regard.nn.pooling import POOLINGS
from regard.recipe import Rate, Section, choose, name_of


class IdentityEncoderConfig(Section):
    kind: Literal["identity"] = "identity"
    input: InputConfig = None
    embedding_size: Size = 256
    dropout: Rate = 0.0
    pooling: Annotated[str, name_of(POOLINGS, "pooling")] = "mean"  # of the states, as one vector that starts a decoder


class IdentityEncoder(Encoder):
    """h_j = x_j. Of words it is a bag: what it knows of their order its input must tell."""

    Config = IdentityEncoderConfig

    def __init__(self, config: IdentityEncoderConfig, shape: Shape) -> None:
        super().__init__()
        self.memory_size = config.embedding_size
        self.embed = build_input(config.input, shape, config.embedding_size, spread_words)
        self.dropout = Dropout(config.dropout)
        self.pool = choose(POOLINGS, config.pooling, "pooling")(self.memory_size, PoolingAttentionConfig().build)
        self.summary_size = self.pool.output_size

    def forward(self, values: Shaped[Tensor, "batch *values"], lengths: Int[Tensor, "batch"] | None = None) -> Memory:
        vectors, lengths = self.read(values, lengths)
        visible = length_mask(lengths, vectors.shape[1])
        states = self.dropout(vectors).masked_fill(~visible[..., None], 0.0)
        return Memory(states, visible, self.pool(states, visible))

    def attention_weights(self, values: Shaped[Tensor, "1 *values"]) -> list[AttentionWeights]:
        """Of the pooling."""
        states, visible, *_ = self(values)
        return pooling_weights(self.pool, states, visible)
