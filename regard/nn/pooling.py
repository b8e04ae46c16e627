"""A sequence as one vector."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.nn.attention import Attention, AttentionOutput

States = Float[Tensor, "batch time size"]
Visible = Bool[Tensor, "batch time"]
Vector = Float[Tensor, "batch _"]
Attending = Callable[[int, int], Attention]  # of a query's size and a state's: how a recipe wants its attention


def mean_over(states: States, visible: Visible) -> Float[Tensor, "batch size"]:
    """The mean of what is no padding."""
    counts = visible.sum(dim=1, keepdim=True).clamp(min=1)
    return states.masked_fill(~visible[..., None], 0.0).sum(dim=1) / counts


def max_over(states: States, visible: Visible) -> Float[Tensor, "batch size"]:
    """The largest value of each element over what is no padding (Collobert et al. 2011)."""
    return states.masked_fill(~visible[..., None], float("-inf")).amax(dim=1)


def last_of(states: States, visible: Visible) -> Float[Tensor, "batch size"]:
    """h_T"""
    places = (visible.sum(dim=1) - 1).clamp(min=0)
    return states.gather(1, places[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]


class Pooling(nn.Module):
    """The states h_1 ... h_T of each row -> one vector of `output_size` elements."""

    def __init__(self, size: int, attention: Attending) -> None:
        super().__init__()
        self.output_size = size

    @property
    def known_places(self) -> int | None:
        """How many states it has places for; None: any number."""
        return None

    def forward(self, states: States, visible: Visible) -> Vector:
        raise NotImplementedError

    def weights(self, states: States, visible: Visible) -> Float[Tensor, "batch heads 1 source"] | None:
        """How much of each state is in the vector, where that is a weighted sum."""
        return None


class Mean(Pooling):
    def forward(self, states: States, visible: Visible) -> Vector:
        return mean_over(states, visible)


class Max(Pooling):
    def forward(self, states: States, visible: Visible) -> Vector:
        return max_over(states, visible)


class Last(Pooling):
    """h_T: where a network that reads from left to right has read everything."""

    def forward(self, states: States, visible: Visible) -> Vector:
        return last_of(states, visible)


class Ends(Pooling):
    """[h_1; h_T]: each direction of a two-directional network has read everything in one of them."""

    def __init__(self, size: int, attention: Attending) -> None:
        super().__init__(size, attention)
        self.output_size = 2 * size

    def forward(self, states: States, visible: Visible) -> Vector:
        return torch.cat([states[:, 0], last_of(states, visible)], dim=-1)


class AttentionPooling(Pooling):
    """Σ_j α_j h_j, where α = softmax(score(q, h_j)) and q is learned (Yang et al. 2016, section 2.2)."""

    def __init__(self, size: int, attention: Attending) -> None:
        super().__init__(size, attention)
        self.query = nn.Parameter(torch.randn(1, 1, size) * size**-0.5)
        self.attention = attention(size, size)
        self.output_size = self.attention.context_size

    @property
    def known_places(self) -> int | None:
        return self.attention.score.known_places

    def forward(self, states: States, visible: Visible) -> Vector:
        return self.attend(states, visible).context[:, 0]

    def weights(self, states: States, visible: Visible) -> Float[Tensor, "batch heads 1 source"] | None:
        return self.attend(states, visible, return_weights=True).weights

    def attend(self, states: States, visible: Visible, return_weights: bool = False) -> AttentionOutput:
        query = self.query.expand(len(states), -1, -1).to(states.dtype)
        found: AttentionOutput = self.attention(query, self.attention.prepare(states, visible), return_weights)
        return found


POOLINGS: dict[str, type[Pooling]] = {
    "mean": Mean,
    "max": Max,
    "last": Last,
    "ends": Ends,
    "attention": AttentionPooling,
}
