"""The Transformer's layers: self-attention, attention to a memory, a network at every position; each joins what it read."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.attention import Attention, Cache, Choice, Glance, Moment, Prepared, Read, SelfAttention, Trace, Where
from regard.nn.dropout import Dropout
from regard.nn.linear import Linear
from regard.nn.positions import Positions
from regard.nn.transformer.feedforward import Fed
from regard.nn.transformer.norms import Join, LayerNorm, Stream

States = Float[Tensor, "batch time size"]
Visible = Bool[Tensor, "batch time"]
Look = Callable[[Float[Tensor, "rows size"], Trace | None], Glance]


class Parts(NamedTuple):
    """What a layer is made of."""

    own: Attention
    cross: Attention | None
    feedforward: nn.Module  # states, visible -> Fed
    norm: Callable[[], LayerNorm]
    dropout: float
    before: bool  # whether norms stand before sublayers
    bias: bool = False  # whether the last product of its own attention adds one
    cross_bias: bool = False  # and that of attention to the memory


class Passed(NamedTuple):
    """What a layer makes of its input, and where it looked: at itself, at the memory."""

    stream: Stream
    read: States  # its input, and that as keys and values
    prepared: Prepared
    own: Read
    seen: Read | None
    cost: Float[Tensor, ""] | None


class LayerState(NamedTuple):
    """What a layer keeps between steps."""

    cache: Cache
    trace: Trace | None


class Layer(nn.Module):
    """h = join(h, own(h));  h = join(h, cross(h, memory));  h = join(h, feedforward(h))  (Vaswani et al. 2017, section 3.1)"""

    def __init__(self, size: int, parts: Parts) -> None:
        super().__init__()
        self.own, self.cross, self.feedforward = SelfAttention(parts.own), parts.cross, parts.feedforward
        self.leave_own = Linear(parts.own.context_size, size, parts.bias)
        self.after_own, self.after_feedforward = (Join(parts.norm(), parts.dropout, parts.before) for _ in range(2))
        if parts.cross is not None:
            self.leave_cross = Linear(parts.cross.context_size, size, parts.cross_bias)
            self.after_cross = Join(parts.norm(), parts.dropout, parts.before)

    @property
    def to_memory(self) -> Attention:
        assert self.cross is not None, "a layer without a memory"
        return self.cross

    def forward(
        self, stream: Stream, visible: Visible | None, where: Where, memory: Prepared | None = None, look: bool = False,
        look_back: bool = False, present: Visible | None = None,
    ) -> Passed:  # fmt: skip
        """`look` asks for the weights on the memory, `look_back` for those on itself; `present`: see Stack."""
        read, projected = stream.read, self.own.project(stream.read, visible, where)
        own = self.own.read(read, projected, look_back, where)
        stream, seen = self.after_own(stream, last(self.leave_own, own.context), present), None
        if self.cross is not None:
            seen = self.cross(stream.read, memory, look)
            stream = self.after_cross(stream, last(self.leave_cross, seen.context), present)
        fed = self.feedforward(stream.read, present)
        return Passed(self.after_feedforward(stream, fed, present), read, projected.prepared, own, seen, fed.cost)

    def step(
        self, stream: Stream, state: LayerState, moment: Moment, look: Look | None
    ) -> tuple[Stream, LayerState, Read | Glance]:
        """The next place of every row; where it looked: at the memory if there is one, at itself otherwise."""
        own, cache = self.own.step(stream.read, state.cache, moment)
        stream = self.after_own(stream, last(self.leave_own, own.context), None)
        seen: Read | Glance = own
        if look is not None:
            seen = look(stream.read[:, 0], state.trace)
            stream = self.after_cross(stream, last(self.leave_cross, seen.context[:, None]), None)
        stream = self.after_feedforward(stream, self.feedforward(stream.read, None), None)
        return stream, LayerState(cache, getattr(seen, "trace", None)), seen


def last(layer: Linear, context: States) -> Fed:
    """The product; on a GPU its bias is added where the result is joined."""
    return Fed(layer.product(context), bias=layer.bias) if context.is_cuda else Fed(layer(context))


class Result(NamedTuple):
    """The top of a stack, and what its layers have to tell."""

    states: States
    passed: Sequence[Passed]

    @property
    def cost(self) -> Float[Tensor, ""] | None:
        costs = [one.cost for one in self.passed if one.cost is not None]
        return torch.stack(costs).sum() if costs else None

    @property
    def weights(self) -> Float[Tensor, "batch heads time source"] | None:
        """On the memory, all layers' heads side by side."""
        found = [one.seen.weights for one in self.passed if one.seen is not None and one.seen.weights is not None]
        return torch.cat(found, dim=1) if found else None

    @property
    def choice(self) -> Choice | None:
        """What hard attention drew in all layers: the log of a product is a sum."""
        found = [one.seen.choice for one in self.passed if one.seen is not None and one.seen.choice is not None]
        if not found:
            return None
        log_prob, entropy = (torch.stack(side).sum(0) for side in zip(*(one[:2] for one in found), strict=True))
        return Choice(log_prob, entropy, lasting=len(found) > 1 or found[0].lasting)


class Stepped(NamedTuple):
    """One step of all rows."""

    outputs: Float[Tensor, "rows size"]
    layers: tuple[LayerState, ...]
    weights: list[Tensor]  # of each layer


class LayerList(nn.ModuleList):
    """Layers that know they are layers."""

    def __iter__(self) -> Iterator[Layer]:
        return super().__iter__()  # type: ignore[return-value]


class Stack(nn.Module):
    """Words with their places through all layers."""

    def __init__(self, size: int, layers: Sequence[Parts], positions: Positions, dropout: float) -> None:
        super().__init__()
        self.size, self.positions, self.dropout = size, positions, Dropout(dropout)
        self.layers = LayerList(Layer(size, parts) for parts in layers)
        self.first_norm = layers[0].norm() if layers[0].before else None

    def enter(self, words: States, places: Int[Tensor, "#batch time"], upto: int, present: Visible | None = None) -> Stream:
        """drop(√d w + p): embeddings begin at length 1, positions at √d."""
        self.positions.check(upto)
        rate = self.dropout.p if self.training else 0.0
        states = self.positions.enter(words, places, self.size**0.5, rate)
        return Stream(states, states if self.first_norm is None else self.first_norm(states, present))

    def forward(
        self, words: States, visible: Visible | None, memory: Sequence[Prepared] | None = None, look: bool = False,
        look_back: bool = False, prefix: Int[Tensor, "batch"] | None = None, present: Visible | None = None,
    ) -> Result:  # fmt: skip
        """`visible` is what attention may see, `present` what is no padding: the same, unless padding lies behind a causal
        sequence, where nobody sees it."""
        present = visible if present is None else present
        where = Where(None, prefix, self.positions if self.positions.relative else None)
        stream, passed = self.enter(words, where.of(words), words.shape[1], present), list[Passed]()
        for depth, layer in enumerate(self.layers):
            keys = None if memory is None else memory[depth]
            passed.append(layer(stream, visible, where, keys, look, look_back, present))
            stream = passed[-1].stream
        return Result(stream.read, passed)

    def step(
        self, words: Float[Tensor, "rows size"], moment: Moment, states: Sequence[LayerState], looks: Sequence[Look | None]
    ) -> Stepped:
        moment = moment.by(self.positions if self.positions.relative else None)
        stream = self.enter(words[:, None], moment.where.of(words[:, None]), moment.upto)
        new, weights = list[LayerState](), list[Tensor]()
        for layer, state, look in zip(self.layers, states, looks, strict=True):
            stream, after, seen = layer.step(stream, state, moment, look)
            new.append(after)
            weights += [] if seen.weights is None else [seen.weights]
        return Stepped(stream.read[:, 0], tuple(new), weights)
