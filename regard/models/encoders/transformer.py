"""The Transformer's encoder: every position looks at every other one."""

from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from regard.data.fields import Shape
from regard.models.inputs import InputConfig, build_input
from regard.models.interface import Encoder, Memory
from regard.models.limits import Limit
from regard.models.transformer import StackConfig, stack_limit
from regard.nn.embedding import Embedding
from regard.nn.lengths import length_mask


class TransformerEncoderConfig(StackConfig):
    kind: Literal["transformer"] = "transformer"
    input: InputConfig = None


class TransformerEncoder(Encoder):
    Config = TransformerEncoderConfig

    def __init__(self, config: TransformerEncoderConfig, shape: Shape) -> None:
        super().__init__()
        self.memory_size = self.summary_size = config.size
        self.embed = build_input(config.input, shape, config.size, Embedding)
        self.stack = config.stack()

    @property
    def limit(self) -> Limit | None:
        return stack_limit(self.stack)

    def forward(self, values: Shaped[Tensor, "batch *values"], lengths: Int[Tensor, "batch"] | None = None) -> Memory:
        words, lengths = self.read(values, lengths)
        visible = length_mask(lengths, words.shape[1])
        result = self.stack(words, visible)
        return Memory(result.states, visible, cost=result.cost)

    def self_attention_weights(self, values: Shaped[Tensor, "batch *values"]) -> Float[Tensor, "batch source source"] | None:
        """The mean of all heads of all layers."""
        passed = self.stack(self.embed(values), None, return_self_weights=True).passed
        return torch.stack([one.self_attention.weights.mean(dim=1) for one in passed]).mean(dim=0)
