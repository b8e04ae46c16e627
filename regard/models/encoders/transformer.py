"""The Transformer's encoder: every position looks at every other one."""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.models.interface import Encoder, Memory
from regard.models.limits import Limit
from regard.models.transformer import StackConfig, stack_limit
from regard.nn.embedding import Embedding
from regard.nn.lengths import length_mask


class TransformerEncoderConfig(StackConfig):
    kind: Literal["transformer"] = "transformer"


class TransformerEncoder(Encoder):
    Config = TransformerEncoderConfig

    def __init__(self, config: TransformerEncoderConfig, vocabulary: int) -> None:
        super().__init__()
        self.memory_size = self.summary_size = config.size
        self.embed = Embedding(vocabulary, config.size)
        self.stack = config.stack()

    @property
    def limit(self) -> Limit | None:
        return stack_limit(self.stack)

    def forward(self, tokens: Int[Tensor, "batch source"], lengths: Int[Tensor, "batch"]) -> Memory:
        visible = length_mask(lengths, tokens.shape[1])
        result = self.stack(self.embed(tokens), visible)
        return Memory(result.states, visible, cost=result.cost)

    def self_attention_weights(self, tokens: Int[Tensor, "batch source"]) -> Float[Tensor, "batch source source"] | None:
        """The mean of all heads of all layers."""
        passed = self.stack(self.embed(tokens), None, return_self_weights=True).passed
        return torch.stack([one.self_attention.weights.mean(dim=1) for one in passed]).mean(dim=0)
