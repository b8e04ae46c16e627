"""The Transformer's encoder: every position looks at every other one."""

from typing import Literal

from jaxtyping import Int, Shaped
from torch import Tensor

from regard.data.fields import Shape
from regard.models.inputs import InputConfig, build_input
from regard.models.interface import AttentionWeights, Encoder, Memory
from regard.models.limits import Limit
from regard.models.transformer import StackConfig, self_weights, stack_limit
from regard.nn.embedding import Embedding
from regard.nn.lengths import length_mask


class TransformerEncoderConfig(StackConfig):
    kind: Literal["transformer"] = "transformer"
    input: InputConfig = None


class TransformerEncoder(Encoder):
    Config = TransformerEncoderConfig

    def __init__(self, config: TransformerEncoderConfig, shape: Shape) -> None:
        super().__init__()
        self.memory_size = self.summary_size = config.hidden_size
        self.embed = build_input(config.input, shape, config.hidden_size, Embedding)
        self.stack = config.stack()

    @property
    def limit(self) -> Limit | None:
        return stack_limit(self.stack)

    def forward(self, values: Shaped[Tensor, "batch *values"], lengths: Int[Tensor, "batch"] | None = None) -> Memory:
        words, lengths = self.read(values, lengths)
        visible = length_mask(lengths, words.shape[1])
        result = self.stack(words, visible)
        return Memory(result.states, visible, cost=result.cost)

    def attention_weights(self, values: Shaped[Tensor, "1 *values"]) -> list[AttentionWeights]:
        return self_weights("encoder", self.stack(self.embed(values), None, return_self_weights=True).passed)
