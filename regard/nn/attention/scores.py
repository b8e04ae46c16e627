"""How well each query matches each key. One class a score; SCORES names them."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import UserError
from regard.nn.attention.additive import bind_additive
from regard.nn.shared import Linear, shared

Query = Float[Tensor, "batch target query"]
Keys = Float[Tensor, "batch source key"]
Scores = Float[Tensor, "batch target source"]


def dot(query: Float[Tensor, "batch target key"], keys: Keys) -> Scores:
    """e_ij = q_i · k_j"""
    return query @ keys.transpose(1, 2)


class Score(nn.Module):
    """`prepare` runs once a source sequence; what `bind` returns runs once a decoding step."""

    def __init__(self, query_size: int, memory_size: int, size: int | None = None) -> None:
        super().__init__()
        self.query_size, self.memory_size, self.size = query_size, memory_size, size or query_size

    def prepare(self, memory: Float[Tensor, "batch source memory"]) -> Keys:
        return memory

    def bind(self, keys: Keys) -> Callable[[Query], Scores]:
        """The score against these keys as a function for one pass over a target."""
        return lambda query: dot(query, keys)

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.bind(keys)(query)


class DotScore(Score):
    """q · k  (Luong et al. 2015, eq. 8 'dot'); needs query and memory of one size."""

    def __init__(self, query_size: int, memory_size: int, size: int | None = None) -> None:
        super().__init__(query_size, memory_size, size)
        if query_size != memory_size:
            raise UserError(
                f"the dot score needs queries and memory of one size, not {query_size} and {memory_size}: "
                "make the decoder's hidden_size equal to the encoder's output size, or take the score 'general'"
            )


class ScaledDotScore(DotScore):
    """q · k / √d  (Vaswani et al. 2017, eq. 1)."""

    def prepare(self, memory: Float[Tensor, "batch source memory"]) -> Keys:
        return memory / math.sqrt(self.memory_size)  # once a key, not once a pair


class GeneralScore(Score):
    """q · W k  (Luong et al. 2015, eq. 8 'general')."""

    def __init__(self, query_size: int, memory_size: int, size: int | None = None) -> None:
        super().__init__(query_size, memory_size, size)
        self.project_key = Linear(memory_size, query_size, bias=False)

    def prepare(self, memory: Float[Tensor, "batch source memory"]) -> Keys:
        keys: Tensor = self.project_key(memory)
        return keys


class AdditiveScore(Score):
    """v · tanh(W q + U k)  (Bahdanau et al. 2015, appendix A.1.2)."""

    def __init__(self, query_size: int, memory_size: int, size: int | None = None) -> None:
        super().__init__(query_size, memory_size, size)
        self.project_query = Linear(query_size, self.size, bias=False)
        self.project_key = Linear(memory_size, self.size, bias=False)
        self.energy = nn.Parameter(torch.empty(self.size).uniform_(-(self.size**-0.5), self.size**-0.5))

    def prepare(self, memory: Float[Tensor, "batch source memory"]) -> Keys:
        keys: Tensor = self.project_key(memory)
        return keys

    def bind(self, keys: Keys) -> Callable[[Query], Scores]:
        project, score = shared(self.project_query), bind_additive(keys, self.energy.to(keys.dtype))
        return lambda query: score(project(query))


SCORES: dict[str, type[Score]] = {
    "additive": AdditiveScore,
    "dot": DotScore,
    "scaled": ScaledDotScore,
    "general": GeneralScore,
}
