"""Which keys a query may see. One class per scope; SCOPES names them.

Every scope is a stretch of keys, `first` to `last`, that moves with the query. Together with padding that is the only rule of
what is visible: key j counts for query i if it is no padding and first_i <= j <= last_i.
"""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.linear import Linear, bind_linear

Places = Int[Tensor, "batch target"]
Bounds = Int[Tensor, "batch #heads target"]
Visible = Bool[Tensor, "batch source"]


class KeyRange(NamedTuple):
    """The keys that each query may see, from first to last; None: no bound on this side."""

    first: Bounds | None = None
    last: Bounds | None = None
    centre: Float[Tensor, "batch heads target"] | None = None  # weights are multiplied by a Gaussian around it
    deviation: float = 1.0


class ScopeQueries(NamedTuple):
    """What a scope may know of the queries: ScopeQueries in, KeyRange out."""

    queries: Float[Tensor, "batch target query"]
    places: Places  # how many steps came before
    reached: Int[Tensor, "batch heads target"]  # the key of the last step's largest weight
    prefix: Int[Tensor, "batch"] | None = None  # so many keys are visible to all, causal or not

    @property
    def latest(self) -> Bounds:
        """The last place that a causal query may know."""
        own = self.places[:, None]
        return own if self.prefix is None else torch.maximum(own, self.prefix[:, None, None] - 1)


class Scope(nn.Module):
    """Everything, or, if `causal`, everything up to the query's own place."""

    local: ClassVar[bool] = False  # whether keys are out of reach even if it is not causal
    compresses: ClassVar[bool] = False  # whether there are fewer keys than states
    moves: ClassVar[bool] = False  # whether it depends on the weights of earlier steps, so that steps must be taken one by one

    def __init__(self, query_size: int, memory_size: int, heads: int = 1, window: int = 10, causal: bool = False) -> None:
        super().__init__()
        self.query_size, self.memory_size, self.heads = query_size, memory_size, heads
        self.window, self.causal = window, causal
        self.build()

    def build(self) -> None:
        """Its parameters."""

    @property
    def bounded(self) -> bool:
        """Whether some keys may be out of reach."""
        return self.local or self.causal

    def key_range(self, asked: ScopeQueries, lengths: Int[Tensor, "batch"]) -> KeyRange:
        return KeyRange(last=asked.latest if self.causal else None)

    def ended(self, asked: ScopeQueries, last: Bounds) -> Bounds:
        """A stretch that goes on to `last`, or to what a causal query may know."""
        return torch.minimum(last, asked.latest) if self.causal else last

    def compress(
        self, memory: Float[Tensor, "batch source memory"], visible: Visible
    ) -> tuple[Float[Tensor, "batch fewer memory"], Bool[Tensor, "batch fewer"]]:
        """The memory as keys are made of it."""
        return memory, visible

    def expand(
        self, weights: Float[Tensor, "batch heads target fewer"], visible: Visible
    ) -> Float[Tensor, "batch heads target source"]:
        """Weights on the memory as it was."""
        return weights


class Causal(Scope):
    """What came before, and the query's own place (Vaswani et al. 2017, section 3.2.3)."""

    def build(self) -> None:
        self.causal = True


class LocalMonotonic(Scope):
    """Keys within `window` of the query's own place: p_t = t  (Luong et al. 2015, 'local-m')."""

    local = True

    def key_range(self, asked: ScopeQueries, lengths: Int[Tensor, "batch"]) -> KeyRange:
        own = within(asked.places, lengths)[:, None]
        return KeyRange(own - self.window, self.ended(asked, own + self.window))


class LocalPredictive(Scope):
    """p_t = S σ(v · tanh(W q_t)); keys within `window` of it, each weight times exp(-(j - p_t)² / 2σ²), σ = window / 2
    (Luong et al. 2015, 'local-p', eq. 9 and 10)."""

    local = True

    def build(self) -> None:
        self.project = Linear(self.query_size, self.query_size, bias=False)
        self.predict = Linear(self.query_size, self.heads, bias=False)

    def key_range(self, asked: ScopeQueries, lengths: Int[Tensor, "batch"]) -> KeyRange:
        share = torch.sigmoid(bind_linear(self.predict)(torch.tanh(bind_linear(self.project)(asked.queries))))
        known = asked.latest[:, 0] + 1 if self.causal else lengths[:, None]  # S, of which a causal query knows what came so far
        centre = (share * known[..., None].float()).mT  # bfloat16 counts to 256
        near = centre.detach()
        first, last = (near - self.window).ceil().long(), (near + self.window).floor().long()
        return KeyRange(first, self.ended(asked, last), centre, self.window / 2)


class Blocks(Scope):
    """The keys of the query's own block of `window` (Liu et al. 2018, local attention)."""

    local = True

    def key_range(self, asked: ScopeQueries, lengths: Int[Tensor, "batch"]) -> KeyRange:
        own = within(asked.places, lengths)[:, None]
        first = own // self.window * self.window
        return KeyRange(first, self.ended(asked, first + self.window - 1))


class Compressed(Scope):
    """The memory, `window` positions at a time made one by a strided convolution (Liu et al. 2018, memory-compressed)."""

    compresses = True

    def build(self) -> None:
        self.squeeze = Linear(self.window * self.memory_size, self.memory_size)

    def compress(
        self, memory: Float[Tensor, "batch source memory"], visible: Visible
    ) -> tuple[Float[Tensor, "batch fewer memory"], Bool[Tensor, "batch fewer"]]:
        clean = memory * visible[..., None]  # padding reaches nothing
        blocks = nn.functional.pad(clean, (0, 0, 0, -memory.shape[1] % self.window))
        count = blocks.shape[1] // self.window
        squeezed: Tensor = self.squeeze(blocks.reshape(memory.shape[0], count, self.window * self.memory_size))
        return squeezed, self.blocks(visible).any(dim=-1)

    def blocks(self, visible: Visible) -> Bool[Tensor, "batch fewer window"]:
        padded = nn.functional.pad(visible, (0, -visible.shape[1] % self.window))
        return padded.view(visible.shape[0], padded.shape[1] // self.window, self.window)

    def key_range(self, asked: ScopeQueries, lengths: Int[Tensor, "batch"]) -> KeyRange:
        """If causal, the blocks that lie wholly in the past."""
        return KeyRange(last=(asked.latest + 1) // self.window - 1 if self.causal else None)

    def expand(
        self, weights: Float[Tensor, "batch heads target fewer"], visible: Visible
    ) -> Float[Tensor, "batch heads target source"]:
        """What falls on a block falls on its positions alike."""
        inside = self.blocks(visible)
        share = inside / inside.sum(dim=-1, keepdim=True).clamp(min=1)
        return (weights[..., None] * share[:, None, None]).flatten(-2)[..., : visible.shape[1]]


class Monotonic(Scope):
    """From the key of the last step's largest weight on: it never turns back."""

    local = moves = True

    def key_range(self, asked: ScopeQueries, lengths: Int[Tensor, "batch"]) -> KeyRange:
        return KeyRange(asked.reached, asked.places[:, None] if self.causal else None)


def within(places: Places, lengths: Int[Tensor, "batch"]) -> Places:
    """A target longer than its source stays at the source's end."""
    return torch.minimum(places, (lengths[:, None] - 1).clamp(min=0))


def mask(key_range: KeyRange, visible: Visible) -> Bool[Tensor, "batch #heads #target source"]:
    """The one rule of what counts."""
    place, counts = torch.arange(visible.shape[1], device=visible.device), visible[:, None, None]
    if key_range.first is not None:
        counts = counts & (place >= key_range.first[..., None])
    if key_range.last is not None:
        counts = counts & (place <= key_range.last[..., None])
    return counts


def gaussian(key_range: KeyRange, source: int) -> Float[Tensor, "batch heads target source"] | None:
    """exp(-(j - p)² / 2σ²)"""
    if key_range.centre is None:
        return None
    place = torch.arange(source, device=key_range.centre.device)
    return torch.exp(-((place - key_range.centre[..., None]) ** 2) / (2 * key_range.deviation**2))


SCOPES: dict[str, type[Scope]] = {
    "global": Scope,
    "causal": Causal,
    "local_m": LocalMonotonic,
    "local_p": LocalPredictive,
    "blocks": Blocks,
    "compressed": Compressed,
    "monotonic": Monotonic,
}
