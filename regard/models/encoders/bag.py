"""A bag of words: each word is its vector, and nothing is known of its neighbours or its place."""

from typing import Literal

from jaxtyping import Int, Shaped
from torch import Tensor

from regard.bounds import Size
from regard.data.fields import Shape
from regard.models.encoders.recurrent import spread_words
from regard.models.inputs import InputConfig, build_input
from regard.models.interface import Encoder, Memory
from regard.nn.dropout import Dropout
from regard.nn.lengths import length_mask
from regard.recipe import Rate, Section


class BagEncoderConfig(Section):
    kind: Literal["bag"] = "bag"
    input: InputConfig = None
    embedding_size: Size = 256
    dropout: Rate = 0.0


class BagEncoder(Encoder):
    """h_t = x_t: a classifier with the pooling `mean` of it is fastText's (Joulin et al. 2017) without its n-grams."""

    Config = BagEncoderConfig

    def __init__(self, config: BagEncoderConfig, shape: Shape) -> None:
        super().__init__()
        self.memory_size = self.summary_size = config.embedding_size
        self.embed = build_input(config.input, shape, config.embedding_size, spread_words)
        self.dropout = Dropout(config.dropout)

    def forward(self, values: Shaped[Tensor, "batch *values"], lengths: Int[Tensor, "batch"] | None = None) -> Memory:
        words, lengths = self.read(values, lengths)
        return Memory(self.dropout(words), length_mask(lengths, words.shape[1]))
