"""How well each query fits each key. One class a score; SCORES names them.

A score projects queries and memory into one space of `heads` parts, where a pair is compared by a dot product or a network.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import UserError
from regard.nn.attention.additive import ACTIVATIONS
from regard.nn.attention.pairs import Dot, Keys, Network, Pair, Queries, Scores
from regard.nn.shared import Linear, bind_product, shared

Query = Float[Tensor, "batch target query"]
States = Float[Tensor, "batch source memory"]
Ask = Callable[[Query], Queries]


class Score(nn.Module):
    """`prepare` runs once a source sequence; what `ask` returns runs once a decoding step."""

    projects: ClassVar[bool] = False  # whether queries and keys are projected to `size` numbers, which the heads share

    def __init__(
        self, query_size: int, memory_size: int, size: int | None = None, heads: int = 1, activation: str = "tanh",
        longest: int = 512,
    ) -> None:  # fmt: skip
        super().__init__()
        self.query_size, self.memory_size, self.size, self.heads = query_size, memory_size, size or query_size, heads
        self.activation, self.longest = activation, longest
        self.build()

    def build(self) -> None:
        """Its parameters."""

    def ask(self) -> Ask:
        """The projection of queries as a function for one pass over a target."""
        return self.split

    def prepare(self, memory: States) -> Keys:
        return self.split(memory)

    @property
    def pair(self) -> Pair:
        return Dot()

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.pair.bind(keys)(self.ask()(query))

    def split(self, inputs: Float[Tensor, "batch time size"]) -> Float[Tensor, "batch heads time part"]:
        """A head's share of every vector."""
        return inputs.view(*inputs.shape[:2], self.heads, -1).transpose(1, 2)

    def to_every_head(self, inputs: Float[Tensor, "batch time size"]) -> Float[Tensor, "batch heads time size"]:
        return inputs[:, None].expand(-1, self.heads, -1, -1)

    def need_whole_parts(self, size: int) -> None:
        if size % self.heads:
            raise UserError(f"{self.heads} heads cannot share a size of {size}: take a size that {self.heads} divides")


class DotScore(Score):
    """q · k  (Luong et al. 2015, section 3.1, 'dot'); needs query and memory of one size."""

    name = "dot"

    def build(self) -> None:
        if self.query_size != self.memory_size:
            raise UserError(
                f"the {self.name} score needs queries and memory of one size, not {self.query_size} and {self.memory_size}: "
                "make the decoder's hidden_size equal to the encoder's output size, or take the score 'general'"
            )
        self.need_whole_parts(self.query_size)


class ScaledDotScore(DotScore):
    """q · k / √d  (Vaswani et al. 2017, eq. 1)."""

    name = "scaled"

    def prepare(self, memory: States) -> Keys:
        return self.split(memory / math.sqrt(self.memory_size // self.heads))  # once a key, not once a pair


class GeneralScore(Score):
    """q · W k, a W for each head  (Luong et al. 2015, section 3.1, 'general')."""

    def build(self) -> None:
        self.project_key = Linear(self.memory_size, self.heads * self.query_size, bias=False)

    def ask(self) -> Ask:
        return self.to_every_head

    def prepare(self, memory: States) -> Keys:
        return self.split(self.project_key(memory))


class ProjectedScore(Score):
    """(U q) · (W k) / √d  (Vaswani et al. 2017, section 3.2.2)."""

    projects = True

    def build(self) -> None:
        self.need_whole_parts(self.size)
        self.project_query = Linear(self.query_size, self.size, bias=False)
        self.project_key = Linear(self.memory_size, self.size, bias=False)

    def ask(self) -> Ask:
        project = shared(self.project_query)
        return lambda query: self.split(project(query))

    def prepare(self, memory: States) -> Keys:
        return self.split(self.project_key(memory) / math.sqrt(self.size // self.heads))


class CosineScore(DotScore):
    """β cos(q, k), each head with its own sharpness β = e^b  (Graves et al. 2014, eq. 6)."""

    name = "cosine"
    SHARPNESS = 8.0  # at first: cosines lie between -1 and 1, and a softmax of those would look everywhere

    def build(self) -> None:
        super().build()
        self.sharpness = nn.Parameter(torch.full((self.heads,), math.log(self.SHARPNESS)))

    def ask(self) -> Ask:
        sharpness = self.sharpness.exp()[:, None, None]
        return lambda query: functional.normalize(self.split(query), dim=-1) * sharpness

    def prepare(self, memory: States) -> Keys:
        return functional.normalize(self.split(memory), dim=-1)


class LocationScore(Score):
    """(W q)_j: only places count, not what stands there  (Luong et al. 2015, eq. 8 'location').

    It is a dot product with the j-th row of W, so W's rows are the keys.
    """

    def build(self) -> None:
        bound = self.query_size**-0.5
        self.rows = nn.Parameter(torch.empty(self.heads, self.longest, self.query_size).uniform_(-bound, bound))

    def ask(self) -> Ask:
        return self.to_every_head

    def prepare(self, memory: States) -> Keys:
        batch, source, _ = memory.shape
        if source > self.rows.shape[1]:
            raise UserError(
                f"the location score knows {self.rows.shape[1]} places, and a source has {source} tokens: "
                "raise model.decoder.attention.longest, or take a score that looks at content"
            )
        return self.rows[:, :source].to(memory.dtype).expand(batch, -1, -1, -1)


class AdditiveScore(Score):
    """v · tanh(W q + U k)  (Bahdanau et al. 2015, appendix A.1.2)."""

    projects = True

    def build(self) -> None:
        self.need_whole_parts(self.size)
        self.project_query = Linear(self.query_size, self.size, bias=False)
        self.project_key = Linear(self.memory_size, self.size, bias=False)
        self.energy = first_energy(self.size, self.heads)

    def ask(self) -> Ask:
        project = shared(self.project_query)
        return lambda query: self.split(project(query))

    def prepare(self, memory: States) -> Keys:
        return self.split(self.project_key(memory))

    @property
    def pair(self) -> Pair:
        return Network(self.energy)


class ConcatScore(Score):
    """v · tanh(W [q; k])  (Luong et al. 2015, section 3.1, 'concat'): W q + U k again, written as one matrix of the pair."""

    projects = True

    def build(self) -> None:
        self.need_whole_parts(self.size)
        self.project = Linear(self.query_size + self.memory_size, self.size, bias=False)
        self.energy = first_energy(self.size, self.heads)

    def ask(self) -> Ask:
        project = bind_product(self.project.weight[:, : self.query_size].contiguous(), None)
        return lambda query: self.split(project(query))

    def prepare(self, memory: States) -> Keys:
        return self.split(bind_product(self.project.weight[:, self.query_size :].contiguous(), None)(memory))

    @property
    def pair(self) -> Pair:
        return Network(self.energy)


class NetworkScore(ConcatScore):
    """v · φ(W [q; k] + b) with φ one of ACTIVATIONS; with the identity it is the linear form."""

    def build(self) -> None:
        super().build()
        if self.activation not in ACTIVATIONS:
            raise UserError(f"unknown activation {self.activation!r}; choose from {', '.join(ACTIVATIONS)}")
        self.bias = nn.Parameter(torch.zeros(self.size))

    def prepare(self, memory: States) -> Keys:
        return super().prepare(memory) + self.split(self.bias[None, None])

    @property
    def pair(self) -> Pair:
        return Network(self.energy, self.activation)


def first_energy(size: int, heads: int) -> nn.Parameter:
    bound = (size // heads) ** -0.5
    return nn.Parameter(torch.empty(heads, size // heads).uniform_(-bound, bound))


SCORES: dict[str, type[Score]] = {
    "additive": AdditiveScore,
    "concat": ConcatScore,
    "network": NetworkScore,
    "dot": DotScore,
    "scaled": ScaledDotScore,
    "general": GeneralScore,
    "projected": ProjectedScore,
    "cosine": CosineScore,
    "location": LocationScore,
}
