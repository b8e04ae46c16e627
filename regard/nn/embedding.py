"""Words as vectors."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.kernels.layers.words import lookup
from regard.nn.linear import lowered


class Embedding(nn.Embedding):
    """nn.Embedding that begins at vectors of length about 1, and gives them in autocast's type: what follows then moves half of
    the bytes, and the table's gradient is added up in float32 all the same."""

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)

    def forward(self, input: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows size"]:
        return lookup(self.weight.to(lowered(self.weight)), input)
