"""Self-attention: a sequence that attends to itself, whole or as it grows."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.attention.attention import ANYWHERE, Attention, AttentionOutput, PreparedMemory, QueryPositions
from regard.nn.attention.pairs import Queries
from regard.nn.lengths import length_mask
from regard.nn.positions import Positions

States = Float[Tensor, "batch time size"]
Rows = Float[Tensor, "rows 1 size"]
Visible = Bool[Tensor, "batch time"]


class Cache(NamedTuple):
    """Keys and values of a growing sequence, kept for its later steps."""

    keys: Float[Tensor, "rows heads time size"]
    values: Float[Tensor, "rows values time value"]
    tail: Float[Tensor, "rows window size"]  # the last states, where keys are made of several; otherwise of no width


class Projected(NamedTuple):
    """A sequence as queries, keys and values of itself."""

    queries: Queries
    prepared: PreparedMemory


class StepPosition(NamedTuple):
    """Where the next step of all rows stands: none of its places is beyond the first `upto`."""

    where: QueryPositions
    upto: int
    ragged: bool = False  # whether rows have got to different places
    return_weights: bool = False
    in_place: bool = False  # whether caches have room for all `upto` places, and are written where they lie

    def by(self, positions: Positions | None) -> "StepPosition":
        return self._replace(where=self.where._replace(positions=positions))


class SelfAttention(nn.Module):
    """An attention whose memory is the sequence of its queries."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(
        self, states: States, visible: Visible | None, return_weights: bool = False, where: QueryPositions = ANYWHERE
    ) -> AttentionOutput:
        return self.read(states, self.project(states, visible, where), return_weights, where)

    def read(
        self, states: States, projected: Projected, return_weights: bool = False, where: QueryPositions = ANYWHERE
    ) -> AttentionOutput:
        if self.attention.sequential:
            return self.attention.one_by_one(states, projected.prepared)
        return self.attention.read(projected.queries, states, projected.prepared, return_weights, None, where)

    def project(self, states: States, visible: Visible | None, where: QueryPositions = ANYWHERE) -> Projected:
        """By one product where all three projections are products of the states."""
        attention = self.attention
        both, value = attention.score.together(), attention.project_value
        if both is None or value is None or attention.scope.compresses:
            return Projected(attention.score.bind_query()(states), attention.prepare(states, visible, where))
        (queries, keys, values), fused = attention.project(states, *both, value)
        keys, fused = where.turn(keys, fused, states)
        there = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device) if visible is None else visible
        return Projected(queries, PreparedMemory(keys, values, there, there, visible is None, fused))

    def open(self, states: States, lengths: Int[Tensor, "batch"] | None = None) -> Cache:
        """Of a sequence that has not begun (`states` of no length), or of one whose rows end after `lengths`."""
        visible = None if lengths is None else length_mask(lengths, states.shape[1])
        return self.keep(states, self.attention.prepare(states, visible), lengths)

    def with_room(self, cache: Cache, places: int) -> Cache:
        """The same for a sequence of so many places, of which those to come are empty."""
        scope = self.attention.scope
        width = -(-places // scope.window) if scope.compresses else places
        keys, values = (functional.pad(side, (0, 0, 0, width - side.shape[2])) for side in cache[:2])
        return cache._replace(keys=keys, values=values)

    def keep(self, states: States, prepared: PreparedMemory, lengths: Int[Tensor, "batch"] | None) -> Cache:
        window = self.attention.scope.window if self.attention.scope.compresses else 0
        tail = functional.pad(states, (0, 0, window, 0))
        if lengths is None:
            return Cache(prepared.keys, prepared.values, tail[:, states.shape[1] :])
        index = lengths[:, None] + torch.arange(window, device=states.device)  # the last `window` places before each row's end
        return Cache(prepared.keys, prepared.values, tail.gather(1, index[..., None].expand(-1, -1, tail.shape[-1])))

    def step(self, states: Rows, cache: Cache, position: StepPosition) -> tuple[AttentionOutput, Cache]:
        cache = self.extend(states, cache, position)
        counts, there = (
            torch.ones(states.shape[0], width, dtype=torch.bool, device=states.device)
            for width in (cache.keys.shape[2], position.upto)
        )
        prepared = PreparedMemory(cache.keys, cache.values, counts, there, True)
        return self.attention.forward(states, prepared, position.return_weights, None, position.where), cache

    def extend(self, states: Rows, cache: Cache, position: StepPosition) -> Cache:
        where, upto, ragged, _, in_place = position
        scope, places = self.attention.scope, where.of(states).expand(states.shape[0], -1)
        if not scope.compresses:
            self.attention.score.check(upto)
            one = self.attention.prepare(states, where=where)
            index, lie = places if ragged else None, (upto, in_place)
            return Cache(put(cache.keys, one.keys, index, *lie), put(cache.values, one.values, index, *lie), cache.tail)
        tail = torch.cat([cache.tail[:, 1:], states], dim=1)  # the block, once it is whole; no query sees it before
        index, count = places // scope.window, -(-upto // scope.window)
        self.attention.score.check(count)
        one = self.attention.prepare(tail, where=QueryPositions(index))  # its place is its block's
        lie = count, in_place
        return Cache(put(cache.keys, one.keys, index, *lie), put(cache.values, one.values, index, *lie), tail)


def put(
    cache: Float[Tensor, "rows heads time size"], one: Float[Tensor, "rows heads 1 size"], index: Int[Tensor, "rows 1"] | None,
    width: int, in_place: bool = False,
) -> Float[Tensor, "rows heads width size"]:  # fmt: skip
    """One column more, at the end or where `index` says."""
    if index is None:
        return torch.cat([cache, one], dim=2)
    grown = cache if in_place else functional.pad(cache, (0, 0, 0, max(0, width - cache.shape[2])))
    return grown.scatter_(2, index[:, None, :, None].expand(one.shape), one.to(grown.dtype))
