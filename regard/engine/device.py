"""A Transformer's decoder on a GPU: of what a step launches, one kernel for each attention, and one for whatever stands between
two products. Caches lie still, and their rows are found by their ancestors."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.models.decoders.transformer import TransformerDecoder
from regard.models.interface import Memory, Step, StepFunction
from regard.nn.attention import Attention, PreparedMemory
from regard.nn.attention.pairs import Dot
from regard.nn.attention.scopes import SCOPES
from regard.nn.attention.scores import ProjectedScore
from regard.nn.attention.selections import Soft
from regard.nn.kernels.layers.norm import add_norm
from regard.nn.kernels.steps import product as products
from regard.nn.kernels.steps.attend import attend_to_past, attend_to_sentence
from regard.nn.kernels.steps.product import Norm, Plus, product
from regard.nn.kernels.steps.words import enter
from regard.nn.linear import Projection, linear, lowered
from regard.nn.state import Lying
from regard.nn.transformer.feedforward import FEEDFORWARDS, FeedForward
from regard.nn.transformer.layers import Layer
from regard.nn.transformer.norms import LayerNorm

Rows = Float[Tensor, "rows size"]


class DeviceState(NamedTuple):
    """What changes from step to step."""

    places: Int[Tensor, "rows"]  # how many words each row has read; one for which there is no room stays at the last place
    ancestors: Int[Tensor, "rows room"] | None  # in which row of its sentence each place was written, where there are several
    caches: Lying  # of one tensor: [rows, layers, keys and values, room, heads * size]


class Stream(NamedTuple):
    """What flows through the layers. Few rows are normalised by whoever reads them."""

    total: Rows
    read: Rows | None  # norm(total), unless it is still to be made
    norm: Norm | None

    def asked(self, layer: Projection, kind: str | None = None) -> Rows:
        if self.read is None:
            return product(self.total, layer, norm=self.norm, kind=kind)
        if kind == "relu" and self.read.is_cuda and layer.bias is not None:
            found: Tensor = torch._addmm_activation(layer.bias, self.read, layer.weight.T)
            return found
        return functional.relu(linear(self.read, *layer)) if kind == "relu" else linear(self.read, *layer)

    def added(self, states: Rows, layer: Projection, norm: Norm, before: bool) -> "Stream":
        """What AddNorm makes of a sublayer's product."""
        if self.read is None:
            plus = Plus(self.total, None if before else self.norm)
            return Stream(product(states, layer, plus=plus), None, norm)
        residual = self.total if before else self.read
        both = add_norm(
            linear(states, layer.weight, None), residual, layer.bias, norm.weight, norm.offset, kind=norm.kind, eps=norm.eps
        )
        return Stream(*both, norm)

    @property
    def finished(self) -> Rows:
        if self.read is not None or self.norm is None:
            return self.total if self.read is None else self.read
        return add_norm(self.total, None, None, self.norm.weight, self.norm.offset, kind=self.norm.kind, eps=self.norm.eps)[1]


class Weights:
    """Parameters as a step reads them: where they lie, or copied into one tensor of the dtype that is asked for."""

    def __init__(self, kind: torch.dtype) -> None:
        self.kind, self.copies = kind, list[tuple[Tensor, Tensor]]()

    def of(self, *parts: Tensor) -> Tensor:
        if len(parts) == 1 and parts[0].dtype == self.kind:
            return parts[0].detach()
        out = torch.empty(sum(map(len, parts)), *parts[0].shape[1:], dtype=self.kind, device=parts[0].device)
        self.copies += zip(torch.split(out, [len(part) for part in parts]), (part.detach() for part in parts), strict=True)
        return out

    def projection(self, *layers: nn.Linear) -> Projection:
        biased = layers[0].bias is not None
        return Projection(self.of(*(one.weight for one in layers)), self.of(*(one.bias for one in layers)) if biased else None)

    def norm(self, norm: LayerNorm) -> Norm:
        assert norm.fused is not None
        return Norm(self.of(norm.weight), None if norm.offset is None else self.of(norm.offset), norm.fused, norm.eps)

    def refresh(self) -> None:
        """As training moves the model's."""
        for kind in dict.fromkeys(one.dtype for _, one in self.copies):
            outs, ones = zip(*((out, one) for out, one in self.copies if one.dtype == kind), strict=True)
            torch._foreach_copy_(outs, ones)


class DeviceLayer:
    def __init__(self, layer: Layer, weights: Weights) -> None:
        own, cross = layer.self_attention.attention, layer.to_memory
        assert isinstance(layer.feedforward, FeedForward)
        assert isinstance(own.score, ProjectedScore)
        assert isinstance(cross.score, ProjectedScore)
        assert own.project_value is not None
        self.own, self.cross, self.network = heads_of(own), heads_of(cross), layer.feedforward
        self.joint = weights.projection(own.score.project_query, own.score.project_key, own.project_value)
        self.query, self.up = weights.projection(cross.score.project_query), weights.projection(self.network.up)
        self.outs = [weights.projection(one) for one in (layer.self_output, layer.cross_output, self.network.down)]
        self.ends = [layer.after_self, layer.after_cross, layer.after_feedforward]
        self.norms = [weights.norm(one.norm) for one in self.ends]

    def end(self, number: int, stream: Stream, states: Rows) -> Stream:
        return stream.added(states, self.outs[number], self.norms[number], self.ends[number].before)

    def step(self, stream: Stream, state: DeviceState, number: int, width: int, memory: PreparedMemory) -> Stream:
        joint = stream.asked(self.joint).view(len(state.places), 3, *self.own.sizes)
        past = state.caches.held[:, number]
        context = attend_to_past(
            joint, past, state.places, state.ancestors, scale=self.own.scale, width=width, marks=number == 0
        )
        stream = self.end(0, stream, context)
        seen = attend_to_sentence(stream.asked(self.query), memory.keys, memory.values, memory.counts, scale=self.cross.scale)
        stream = self.end(1, stream, seen)
        if self.network.kind == "relu":
            return self.end(2, stream, stream.asked(self.up, "relu"))
        return self.end(2, stream, self.network.activate(stream.asked(self.up)))


class Heads(NamedTuple):
    sizes: tuple[int, int]  # how many, and of how many elements
    scale: float


def heads_of(attention: Attention) -> Heads:
    pair = attention.score.pair
    assert isinstance(pair, Dot)
    return Heads((attention.heads, attention.context_size // attention.heads), pair.scale / attention.selection.temperature)


class DeviceDecoder:
    """Steps as the decoder does, without its weights on the memory. It shares its parameters."""

    def __init__(self, decoder: TransformerDecoder, longest: int) -> None:
        self.decoder, self.longest, stack = decoder, longest, decoder.stack
        self.weights = weights = Weights(lowered(decoder.embed.weight))
        self.embed = weights.of(decoder.embed.weight)
        tied = decoder.output.weight is decoder.embed.weight
        bias = None if decoder.output.bias is None else weights.of(decoder.output.bias)
        self.output = Projection(self.embed if tied else weights.of(decoder.output.weight), bias)
        self.first = None if stack.first_norm is None else weights.norm(stack.first_norm)
        self.layers = [DeviceLayer(layer, weights) for layer in stack.layers]
        self.table = self.places() if stack.positions.absolute else None
        self.learns = any(True for _ in stack.positions.parameters())
        weights.refresh()

    def places(self) -> Float[Tensor, "longest size"]:
        each = torch.arange(self.longest, device=self.embed.device)[None]
        found = self.decoder.stack.positions.encode(each)[0].detach()
        return found.to(self.weights.kind).expand(-1, self.decoder.stack.size).contiguous()

    @property
    def current(self) -> bool:
        """Whether copies are of the dtype that is asked for."""
        return self.weights.kind == lowered(self.decoder.embed.weight)

    def refresh(self) -> None:
        self.weights.refresh()
        if self.table is not None and self.learns:
            self.table.copy_(self.places())

    def start(self, memory: Memory, room: int, several: bool) -> DeviceState:
        rows, (heads, size) = len(memory.states), self.layers[0].own.sizes
        caches = self.embed.new_zeros(rows, len(self.layers), 2, room, heads * size)
        places = torch.zeros(rows, dtype=torch.long, device=caches.device)
        return DeviceState(places, places.new_zeros(rows, room, dtype=torch.int32) if several else None, Lying(caches))

    def bind(self, memory: Memory) -> StepFunction:
        """Steps that write into the State they are given; places are counted by the search."""
        batch = len(memory.states)

        def step(words: Int[Tensor, "rows"], state: DeviceState) -> Step:
            width = len(words) // batch
            total = enter(words, self.embed, self.table, state.places, self.decoder.stack.size**0.5)
            few = products.applies(total)
            stream = Stream(total, None if few else total if self.first is None else self.first(total), self.first)
            for number, (layer, keys) in enumerate(zip(self.layers, memory.keys.layers, strict=True)):
                stream = layer.step(stream, state, number, width, keys)
            logits = self.logits(stream)
            return Step(logits, None, state)

        return step

    def logits(self, stream: Stream) -> Float[Tensor, "rows vocabulary"]:
        if len(stream.total) <= products.ALONE:
            return stream.asked(self.output)
        return linear(stream.finished, *self.output)


def device_problem(decoder: nn.Module) -> str | None:
    """Why a decoder is stepped as it is."""
    if type(decoder) is not TransformerDecoder or decoder.copies_words:
        return "no Transformer's decoder without copying"
    stack, layers = decoder.stack, list(decoder.stack.layers)
    attentions = [one for layer in layers for one in (layer.self_attention.attention, layer.to_memory)]
    if stack.positions.turns or stack.positions.relative or getattr(stack.positions, "merge", None) is not None:
        return "positions that are more than a part of words"
    if (
        not all(map(plain, attentions))
        or any(one.scope.causal for one in attentions[1::2])
        or len({one.context_size for one in attentions[::2]}) > 1
    ):
        return "attentions other than softmax of projected products over all keys"
    if not all(type(layer.feedforward) in FEEDFORWARDS.values() for layer in layers):
        return "experts"
    return None if all(layer.after_self.norm.fused is not None for layer in layers) else "norms that kernels do not have"


def plain(attention: Attention) -> bool:
    soft = type(attention.selection) is Soft and type(attention.score) is ProjectedScore and attention.covered is None
    whole = type(attention.scope) in (SCOPES["global"], SCOPES["causal"]) and attention.project_value is not None
    return soft and whole and attention.score.size == attention.context_size
