"""The Transformer's layers: self-attention, attention to a memory, a network at every position, each added to its input."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.nn.attention import (
    Attention,
    AttentionOutput,
    AttentionState,
    AttentionStep,
    Cache,
    HardSample,
    PreparedMemory,
    QueryPositions,
    SelfAttention,
    StepPosition,
)
from regard.nn.dropout import Dropout
from regard.nn.linear import Linear
from regard.nn.positions import Positions
from regard.nn.transformer.feedforward import SublayerOutput
from regard.nn.transformer.norms import AddNorm, LayerNorm, ResidualStream

States = Float[Tensor, "batch time size"]
Visible = Bool[Tensor, "batch time"]
CrossStep = Callable[[Float[Tensor, "rows size"], AttentionState | None], AttentionStep]


class LayerParts(NamedTuple):
    """What a layer is made of."""

    self_attention: Attention
    cross: Attention | None
    feedforward: nn.Module  # states, visible -> SublayerOutput
    norm: Callable[[], LayerNorm]
    dropout: float
    before: bool  # whether norms stand before sublayers
    bias: bool = False  # whether the output projection of self-attention has one
    cross_bias: bool = False  # and that of attention to the memory


class LayerOutput(NamedTuple):
    """What a layer gives, and what its attentions did."""

    stream: ResidualStream
    read: States  # its input
    prepared: PreparedMemory  # keys and values of that
    self_attention: AttentionOutput
    seen: AttentionOutput | None  # of attention to the memory
    cost: Float[Tensor, ""] | None


class LayerState(NamedTuple):
    """What a layer keeps between steps."""

    cache: Cache
    attention_state: AttentionState | None


class Layer(nn.Module):
    """h = norm(h + self(h)), h = norm(h + cross(h, memory)), h = norm(h + feedforward(h))  (Vaswani et al. 2017, 3.1)"""

    def __init__(self, size: int, parts: LayerParts) -> None:
        super().__init__()
        self.self_attention, self.cross, self.feedforward = SelfAttention(parts.self_attention), parts.cross, parts.feedforward
        self.self_output = Linear(parts.self_attention.context_size, size, parts.bias)
        self.after_self, self.after_feedforward = (AddNorm(parts.norm(), parts.dropout, parts.before) for _ in range(2))
        if parts.cross is not None:
            self.cross_output = Linear(parts.cross.context_size, size, parts.cross_bias)
            self.after_cross = AddNorm(parts.norm(), parts.dropout, parts.before)

    @property
    def to_memory(self) -> Attention:
        assert self.cross is not None, "a layer without a memory"
        return self.cross

    def forward(
        self, stream: ResidualStream, visible: Visible | None, where: QueryPositions, memory: PreparedMemory | None = None,
        return_weights: bool = False, return_self_weights: bool = False, present: Visible | None = None,
    ) -> LayerOutput:  # fmt: skip
        """`return_weights`: those on the memory; `return_self_weights`: those on itself; `present`: see TransformerStack."""
        read, projected = stream.read, self.self_attention.project(stream.read, visible, where)
        itself = self.self_attention.read(read, projected, return_self_weights, where)
        stream, seen = self.after_self(stream, project(self.self_output, itself.context), present), None
        if self.cross is not None:
            seen = self.cross(stream.read, memory, return_weights)
            stream = self.after_cross(stream, project(self.cross_output, seen.context), present)
        fed = self.feedforward(stream.read, present)
        return LayerOutput(self.after_feedforward(stream, fed, present), read, projected.prepared, itself, seen, fed.cost)

    def step(
        self, stream: ResidualStream, state: LayerState, position: StepPosition, cross: CrossStep | None
    ) -> tuple[ResidualStream, LayerState, AttentionOutput | AttentionStep]:
        """The next place of every row; also its attention to the memory if there is one, to itself otherwise."""
        itself, cache = self.self_attention.step(stream.read, state.cache, position)
        stream = self.after_self(stream, project(self.self_output, itself.context), None)
        seen: AttentionOutput | AttentionStep = itself
        if cross is not None:
            seen = cross(stream.read[:, 0], state.attention_state)
            stream = self.after_cross(stream, project(self.cross_output, seen.context[:, None]), None)
        stream = self.after_feedforward(stream, self.feedforward(stream.read, None), None)
        return stream, LayerState(cache, seen.attention_state if isinstance(seen, AttentionStep) else None), seen


def project(layer: Linear, context: States) -> SublayerOutput:
    """The output projection; on a GPU its bias is added by the kernel of AddNorm."""
    return SublayerOutput(layer.matmul(context), bias=layer.bias) if context.is_cuda else SublayerOutput(layer(context))


class TransformerOutput(NamedTuple):
    """The states of the top layer, and the outputs of all layers."""

    states: States
    passed: Sequence[LayerOutput]

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
    def choice(self) -> HardSample | None:
        """What hard attention drew in all layers: the log of a product is a sum."""
        found = [one.seen.choice for one in self.passed if one.seen is not None and one.seen.choice is not None]
        if not found:
            return None
        log_prob, entropy = (torch.stack(side).sum(0) for side in zip(*(one[:2] for one in found), strict=True))
        return HardSample(log_prob, entropy, lasting=len(found) > 1 or found[0].lasting)


class Stepped(NamedTuple):
    """One step of all rows."""

    outputs: Float[Tensor, "rows size"]
    layers: tuple[LayerState, ...]
    weights: list[Tensor]  # of each layer


class LayerList(nn.ModuleList):
    """Layers that know they are layers."""

    def __iter__(self) -> Iterator[Layer]:
        return super().__iter__()  # type: ignore[return-value]


class TransformerStack(nn.Module):
    """Words with their places through all layers."""

    def __init__(self, size: int, layers: Sequence[LayerParts], positions: Positions, dropout: float) -> None:
        super().__init__()
        self.size, self.positions, self.dropout = size, positions, Dropout(dropout)
        self.layers = LayerList(Layer(size, parts) for parts in layers)
        self.first_norm = layers[0].norm() if layers[0].before else None

    def enter(
        self, words: States, places: Int[Tensor, "#batch time"], upto: int, present: Visible | None = None
    ) -> ResidualStream:
        """drop(√d w + p): embeddings begin at length 1, positions at √d."""
        self.positions.check(upto)
        rate = self.dropout.p if self.training else 0.0
        states = self.positions.enter(words, places, self.size**0.5, rate)
        return ResidualStream(states, states if self.first_norm is None else self.first_norm(states, present))

    def forward(
        self, words: States, visible: Visible | None, memory: Sequence[PreparedMemory] | None = None,
        return_weights: bool = False, return_self_weights: bool = False, prefix: Int[Tensor, "batch"] | None = None,
        present: Visible | None = None,
    ) -> TransformerOutput:  # fmt: skip
        """`visible` is what attention may see, `present` what is no padding: the same, unless padding lies behind a causal
        sequence, where nobody sees it."""
        present = visible if present is None else present
        where = QueryPositions(None, prefix, self.positions if self.positions.relative else None)
        stream, passed = self.enter(words, where.of(words), words.shape[1], present), list[LayerOutput]()
        for depth, layer in enumerate(self.layers):
            keys = None if memory is None else memory[depth]
            passed.append(layer(stream, visible, where, keys, return_weights, return_self_weights, present))
            stream = passed[-1].stream
        return TransformerOutput(stream.read, passed)

    def step(
        self,
        words: Float[Tensor, "rows size"],
        position: StepPosition,
        states: Sequence[LayerState],
        crosses: Sequence[CrossStep | None],
    ) -> Stepped:
        position = position.by(self.positions if self.positions.relative else None)
        stream = self.enter(words[:, None], position.where.of(words[:, None]), position.upto)
        new, weights = list[LayerState](), list[Tensor]()
        for layer, state, cross in zip(self.layers, states, crosses, strict=True):
            stream, after, seen = layer.step(stream, state, position, cross)
            new.append(after)
            weights += [] if seen.weights is None else [seen.weights]
        return Stepped(stream.read[:, 0], tuple(new), weights)
