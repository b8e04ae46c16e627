"""How well each query fits each key. One class per score; SCORES names them.

A score projects queries and memory into one space of `heads` parts, where a pair is compared by a dot product or a network.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import UserError
from regard.nn.attention.additive import ACTIVATIONS
from regard.nn.attention.pairs import Dot, Keys, Network, Pair, Queries, Scores
from regard.nn.linear import Linear, Projection, bind_linear, bind_projection

Query = Float[Tensor, "batch target query"]
States = Float[Tensor, "batch source memory"]
Places = Int[Tensor, "batch source"]
Ask = Callable[[Query], Queries]
Both = tuple[Projection, Projection]


class Score(nn.Module):
    """`prepare` runs once per source sequence; what `bind_query` returns runs once per decoding step."""

    projects: ClassVar[bool] = False  # whether queries and keys are projected to `size` elements, which the heads share

    def __init__(
        self, query_size: int, memory_size: int, size: int | None = None, heads: int = 1, activation: str = "tanh",
        longest: int = 512, bias: bool = False,
    ) -> None:  # fmt: skip
        """`bias`: whether projections add one; the papers' do not."""
        super().__init__()
        self.query_size, self.memory_size, self.size, self.heads = query_size, memory_size, size or query_size, heads
        self.activation, self.longest, self.biased = activation, longest, bias
        self.build()

    def build(self) -> None:
        """Its parameters."""

    def bind_query(self) -> Ask:
        """The projection of queries as a function for one pass over a target."""
        return self.split

    def prepare(self, memory: States, places: Places | None = None) -> Keys:
        """`places` of these states in their sequence; 0 and up unless given."""
        return self.split(memory)

    @property
    def known_places(self) -> int | None:
        """How many places of a memory it knows; None: all of them."""
        return None

    def check(self, length: int) -> None:
        """UserError if a memory of this length has places that it does not know."""

    def together(self) -> Both | None:
        """The projections of queries and keys that are used as they are, for one product with the same input."""
        return None

    @property
    def pair(self) -> Pair:
        return Dot()

    def forward(self, query: Query, keys: Keys) -> Scores:
        return self.pair.bind(keys)(self.bind_query()(query))

    def split(self, inputs: Float[Tensor, "batch time size"]) -> Float[Tensor, "batch heads time part"]:
        """A head's share of every vector."""
        parts = inputs.view(*inputs.shape[:-1], self.heads, inputs.shape[-1] // self.heads)
        return parts.transpose(1, 2)

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

    @property
    def pair(self) -> Pair:
        return Dot((self.memory_size // self.heads) ** -0.5)


class GeneralScore(Score):
    """q · W k, a W for each head  (Luong et al. 2015, section 3.1, 'general')."""

    def build(self) -> None:
        self.project_key = Linear(self.memory_size, self.heads * self.query_size, bias=False)

    def bind_query(self) -> Ask:
        return self.to_every_head

    def prepare(self, memory: States, places: Places | None = None) -> Keys:
        return self.split(self.project_key(memory))


class ProjectedScore(Score):
    """(U q) · (W k) / √d  (Vaswani et al. 2017, section 3.2.2)."""

    projects = True

    def build(self) -> None:
        self.need_whole_parts(self.size)
        self.project_query = Linear(self.query_size, self.size, bias=self.biased)
        self.project_key = Linear(self.memory_size, self.size, bias=self.biased)

    def bind_query(self) -> Ask:
        project = bind_linear(self.project_query)
        return lambda query: self.split(project(query))

    def prepare(self, memory: States, places: Places | None = None) -> Keys:
        return self.split(self.project_key(memory))

    def together(self) -> Both | None:
        sides = self.project_query, self.project_key
        return Projection(sides[0].weight, sides[0].bias), Projection(sides[1].weight, sides[1].bias)

    @property
    def pair(self) -> Pair:
        return Dot((self.size // self.heads) ** -0.5)


class CosineScore(DotScore):
    """β cos(q, k), each head with its own sharpness β = e^b  (Graves et al. 2014, eq. 6)."""

    name = "cosine"
    SHARPNESS = 8.0  # at first: cosines lie between -1 and 1, and a softmax of those would be nearly uniform

    def build(self) -> None:
        super().build()
        self.sharpness = nn.Parameter(torch.full((self.heads,), math.log(self.SHARPNESS)))

    def bind_query(self) -> Ask:
        sharpness = self.sharpness.exp()[:, None, None]
        return lambda query: functional.normalize(self.split(query), dim=-1) * sharpness

    def prepare(self, memory: States, places: Places | None = None) -> Keys:
        return functional.normalize(self.split(memory), dim=-1)


class LocationScore(Score):
    """(W q)_j: only places count, not what stands there  (Luong et al. 2015, eq. 8 'location').

    It is a dot product with the j-th row of W, so W's rows are the keys.
    """

    def build(self) -> None:
        bound = self.query_size**-0.5
        self.rows = nn.Parameter(torch.empty(self.heads, self.longest, self.query_size).uniform_(-bound, bound))

    def bind_query(self) -> Ask:
        return self.to_every_head

    @property
    def known_places(self) -> int | None:
        return self.longest

    def check(self, length: int) -> None:
        if length > self.longest:
            raise UserError(
                f"the location score knows {self.longest} places, and a source has {length} tokens: "
                "raise model.decoder.attention.longest, or take a score that looks at content"
            )

    def prepare(self, memory: States, places: Places | None = None) -> Keys:
        batch, source, _ = memory.shape
        self.check(source)
        rows = self.rows.to(memory.dtype)
        if places is not None:
            return rows[:, places].transpose(0, 1)
        return rows[:, :source].expand(batch, -1, -1, -1)


class AdditiveScore(Score):
    """v · tanh(W q + U k)  (Bahdanau et al. 2015, appendix A.1.2)."""

    projects = True

    def build(self) -> None:
        self.need_whole_parts(self.size)
        self.project_query = Linear(self.query_size, self.size, bias=self.biased)
        self.project_key = Linear(self.memory_size, self.size, bias=False)  # one bias is enough for q + k
        self.score_vector = first_score_vector(self.size, self.heads)

    def bind_query(self) -> Ask:
        project = bind_linear(self.project_query)
        return lambda query: self.split(project(query))

    def prepare(self, memory: States, places: Places | None = None) -> Keys:
        return self.split(self.project_key(memory))

    @property
    def pair(self) -> Pair:
        return Network(self.score_vector)


class ConcatScore(Score):
    """v · tanh(W [q; k])  (Luong et al. 2015, section 3.1, 'concat'): W q + U k again, written as one matrix of the pair."""

    projects = True

    def build(self) -> None:
        self.need_whole_parts(self.size)
        self.project = Linear(self.query_size + self.memory_size, self.size, bias=False)
        self.score_vector = first_score_vector(self.size, self.heads)

    def bind_query(self) -> Ask:
        project = bind_projection(self.project.weight[:, : self.query_size].contiguous(), None)
        return lambda query: self.split(project(query))

    def prepare(self, memory: States, places: Places | None = None) -> Keys:
        return self.split(bind_projection(self.project.weight[:, self.query_size :].contiguous(), None)(memory))

    @property
    def pair(self) -> Pair:
        return Network(self.score_vector)


class NetworkScore(ConcatScore):
    """v · φ(W [q; k] + b) with φ one of ACTIVATIONS; with the identity it is the linear form."""

    def build(self) -> None:
        super().build()
        if self.activation not in ACTIVATIONS:
            raise UserError(f"unknown activation {self.activation!r}; choose from {', '.join(ACTIVATIONS)}")
        self.bias = nn.Parameter(torch.zeros(self.size))

    def prepare(self, memory: States, places: Places | None = None) -> Keys:
        return super().prepare(memory, places) + self.split(self.bias[None, None])

    @property
    def pair(self) -> Pair:
        return Network(self.score_vector, self.activation)


def first_score_vector(size: int, heads: int) -> nn.Parameter:
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
