"""Transformers for inference: queries, keys and values by one product; caches that are never moved, and whose rows are found by
their ancestors."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from regard.engine import native
from regard.engine.products import PRECISIONS, Pack, projection
from regard.engine.steps import Seen, whole_step
from regard.models.decoders.transformer import TransformerDecoder
from regard.models.encoders.transformer import TransformerEncoder
from regard.models.interface import Memory, Step, StepFunction
from regard.nn.attention import Attention
from regard.nn.attention.pairs import Dot
from regard.nn.attention.scores import ProjectedScore
from regard.nn.lengths import length_mask
from regard.nn.linear import LinearForInference, Projection
from regard.nn.rounding import by_rows, scaled
from regard.nn.transformer.feedforward import FeedForward
from regard.nn.transformer.layers import Layer, TransformerStack
from regard.nn.transformer.norms import AddNorm, ResidualStream

Rows = Float[Tensor, "rows size"]
Pairs = Float[Tensor, "slots heads places both"]  # a key and its value side by side
FIRST_PLACES = 32  # that a cache has room for; it doubles when they are full


class Heads:
    """The sizes of an attention, and its maps: queries already divided by √d, keys and values of each head side by side."""

    def __init__(self, attention: Attention) -> None:
        score, value = attention.score, attention.project_value
        assert isinstance(score, ProjectedScore)
        assert isinstance(score.pair, Dot)
        assert value is not None
        self.count, self.key, self.value = attention.heads, score.size // attention.heads, value.out_features // attention.heads
        query, scale = projection(score.project_query), score.pair.scale
        self.queries = Projection(scaled(query.weight, scale), None if query.bias is None else query.bias * scale)
        self.pairs = joined([projection(score.project_key), projection(value)], self.side_by_side)

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.count, self.key, self.value

    @property
    def all(self) -> Projection:
        return joined([self.queries, self.pairs], torch.cat)

    def side_by_side(self, parts: list[Float[Tensor, "heads*size ..."]]) -> Float[Tensor, "heads*both ..."]:
        return torch.cat([part.view(self.count, -1, *part.shape[1:]) for part in parts], dim=1).flatten(0, 1)


def joined(parts: Sequence[Projection], change: Callable[[list[Tensor]], Tensor]) -> Projection:
    """Projections of one input as one; they have biases, or none has."""
    biases = [part.bias for part in parts if part.bias is not None]
    return Projection(by_rows(change, [part.weight for part in parts]), change(biases) if biases else None)


class Looked(NamedTuple):
    """What one query a row read, the heads side by side, and where each head looked."""

    context: Float[Tensor, "rows heads*value"]
    weights: Float[Tensor, "rows heads places"]


def look(
    queries: Float[Tensor, "rows heads*key"], pairs: Pairs, heads: Heads, times: int,
    ancestors: Int[Tensor, "rows times"] | None = None, visible: Bool[Tensor, "slots times"] | None = None,
) -> Looked:  # fmt: skip
    """softmax(q Kᵀ) V over the first `times` places. A row's pair at time t lies in the slot of its ancestor; without
    ancestors slots are shared by neighbouring rows, as many each."""
    sharers = len(queries) // len(pairs) if ancestors is None else 1
    if (own := native.library()) is not None:
        return Looked(*native.attend(own, queries, pairs, heads.key, times, ancestors, visible, sharers))
    if ancestors is not None:
        past = pairs.flatten(0, 2).index_select(0, places_of(ancestors, pairs)).view(-1, heads.count, times, pairs.shape[-1])
    else:
        past = pairs[:, :, :times]
    past = past.float()
    asked = queries.view(-1, sharers, heads.count, heads.key).transpose(1, 2)
    scores = asked @ past[..., : heads.key].mT
    weights = (scores if visible is None else scores.masked_fill(~visible[:, None, None], float("-inf"))).softmax(dim=-1)
    context = (weights @ past[..., heads.key :]).transpose(1, 2)
    return Looked(context.reshape(len(queries), -1), weights.transpose(1, 2).flatten(0, 1))


def places_of(ancestors: Int[Tensor, "rows times"], pairs: Pairs) -> Int[Tensor, "rows*heads*times"]:
    """Where the pairs of these rows lie, all slots, heads and places counted together."""
    heads, places = pairs.shape[1:3]
    each = ancestors[:, None] * heads + torch.arange(heads)[:, None]
    return (each * places + torch.arange(ancestors.shape[1])).flatten()


class FeedForwardEngine:
    def __init__(self, network: FeedForward, pack: Pack) -> None:
        self.activate = network.activate
        self.up, self.down = (pack(*projection(side)) for side in (network.up, network.down))

    def __call__(self, states: Rows) -> Rows:
        return self.down(self.activate(self.up(states)))


def add_norm(stream: ResidualStream, fed: Rows, into: AddNorm) -> ResidualStream:
    total = fed.add_(stream.total)
    normed = into.norm.forward(total)
    return ResidualStream(total if into.before else normed, normed)


class Entrance:
    """√d w + p, and the first norm if there is one; vectors of places are computed once."""

    def __init__(self, stack: TransformerStack) -> None:
        self.stack, self.scale, self.vectors = stack, stack.size**0.5, torch.zeros(0, stack.size)

    def __call__(self, words: Float[Tensor, "*rows size"], first: int, last: int) -> ResidualStream:
        states = words * self.scale
        if self.stack.positions.absolute:
            states += self.places(last)[first:last]
        norm = self.stack.first_norm
        return ResidualStream(states, states if norm is None else norm.forward(states))

    def places(self, upto: int) -> Float[Tensor, "places size"]:
        self.stack.positions.check(upto)
        if upto > len(self.vectors):
            known = self.stack.positions.known_places
            most = 2 * upto if known is None else min(2 * upto, known)
            self.vectors = self.stack.positions.encode(torch.arange(most)[None])[0].expand(-1, self.stack.size).detach()
        return self.vectors


class EncoderLayer:
    def __init__(self, layer: Layer, pack: Pack) -> None:
        self.layer, self.heads = layer, Heads(layer.self_attention.attention)
        self.project, self.output = pack(*self.heads.all), pack(*projection(layer.self_output))
        self.feed = FeedForwardEngine(layer.feedforward, pack)  # type: ignore[arg-type]

    def __call__(self, stream: ResidualStream, visible: Bool[Tensor, "batch 1 1 source"] | None) -> ResidualStream:
        count, key, _ = self.heads.sizes
        both, shape = self.project(stream.read), (*stream.read.shape[:2], count, -1)
        queries = both[..., : count * key].view(*shape).transpose(1, 2)
        pairs = both[..., count * key :].view(*shape).transpose(1, 2)
        context = functional.scaled_dot_product_attention(queries, pairs[..., :key], pairs[..., key:], visible, scale=1.0)
        stream = add_norm(stream, self.output(context.transpose(1, 2).flatten(2)), self.layer.after_self)
        return add_norm(stream, self.feed(stream.read), self.layer.after_feedforward)


class TransformerEncoderEngine:
    def __init__(self, encoder: TransformerEncoder, pack: Pack) -> None:
        self.embed, self.enter = encoder.embed, Entrance(encoder.stack)
        self.layers = [EncoderLayer(layer, pack) for layer in encoder.stack.layers]

    def __call__(self, values: Int[Tensor, "batch source"], lengths: Int[Tensor, "batch"] | None) -> Memory:
        time = values.shape[1]
        lengths = torch.full((len(values),), time) if lengths is None else lengths
        visible = length_mask(lengths, time)
        seen = None if bool(visible.all()) else visible[:, None, None]
        stream = self.enter(self.embed(values), 0, time)
        for layer in self.layers:
            stream = layer(stream, seen)
        return Memory(stream.read, visible)


def kept_by(pack: Pack) -> torch.dtype:
    """Of keys and values: where weights are rounded, they take half of the bytes too, which is what a step waits for."""
    return torch.float32 if pack is PRECISIONS["float32"] else torch.bfloat16


class Caches:
    """Keys and values of all layers, each where it was written: they are never moved. A row's own are found by its ancestors.
    Steps are taken one after the other, so a State is stepped from once."""

    def __init__(self, layers: int, heads: Heads, kept: torch.dtype) -> None:
        self.length = 0
        self.pairs = torch.empty(layers, 0, heads.count, FIRST_PLACES, heads.key + heads.value, dtype=kept)

    def open(self, rows: int, time: int) -> None:
        """Make room for so many rows at this time."""
        assert time == self.length, "a State of an engine is stepped from once, for its caches are written in place"
        layers, slots, heads, places, both = self.pairs.shape
        if rows > slots or time == places:
            grown = self.pairs.new_empty(layers, max(rows, slots), heads, places * (2 if time == places else 1), both)
            grown[:, :slots, :, :time] = self.pairs[:, :, :, :time]
            self.pairs = grown
        self.length += 1


class TransformerState(NamedTuple):
    ancestors: Int[Tensor, "rows time"]  # in which row of the caches each word read so far was written
    caches: Caches


class DecoderLayer:
    def __init__(self, layer: Layer, pack: Pack) -> None:
        self.layer, self.heads, self.cross = layer, Heads(layer.self_attention.attention), Heads(layer.to_memory)
        self.project, self.output = pack(*self.heads.all), pack(*projection(layer.self_output))
        self.ask, self.see = pack(*self.cross.queries), pack(*self.cross.pairs)
        self.cross_output = pack(*projection(layer.cross_output))
        self.feed = FeedForwardEngine(layer.feedforward, pack)  # type: ignore[arg-type]
        self.kept = kept_by(pack)

    def prepare(self, states: Float[Tensor, "batch source size"]) -> Pairs:
        """Keys and values of the memory."""
        pairs = self.see(states).view(*states.shape[:2], self.cross.count, -1)
        return pairs.transpose(1, 2).to(self.kept).contiguous()

    def step(
        self, stream: ResidualStream, own: Pairs, ancestors: Int[Tensor, "rows time"], memory: Pairs,
        visible: Bool[Tensor, "batch source"] | None,
    ) -> tuple[ResidualStream, Float[Tensor, "rows heads source"]]:  # fmt: skip
        rows, time = ancestors.shape
        both, asked = self.project(stream.read), self.heads.count * self.heads.key
        own[:rows, :, time - 1] = both[:, asked:].view(rows, self.heads.count, -1)
        moved = None if rows == len(memory) == len(own) else ancestors  # a row of its own for each sentence stays where it is
        looked = look(both[:, :asked], own, self.heads, time, moved)
        stream = add_norm(stream, self.output(looked.context), self.layer.after_self)
        looked = look(self.ask(stream.read), memory, self.cross, memory.shape[2], None, visible)
        stream = add_norm(stream, self.cross_output(looked.context), self.layer.after_cross)
        return add_norm(stream, self.feed(stream.read), self.layer.after_feedforward), looked.weights


class TransformerDecoderEngine:
    def __init__(self, decoder: TransformerDecoder, pack: Pack) -> None:
        self.embed, self.enter = decoder.embed, Entrance(decoder.stack)
        self.layers = [DecoderLayer(layer, pack) for layer in decoder.stack.layers]
        self.output = LinearForInference(decoder.output, pack(*projection(decoder.output)))
        self.whole = whole_step(self.layers, self.output.product)

    def prepare(self, memory: Memory) -> Memory:
        return memory._replace(keys=[layer.prepare(memory.states) for layer in self.layers])

    def start(self, memory: Memory) -> TransformerState:
        nothing = torch.zeros(len(memory.states), 0, dtype=torch.long)
        return TransformerState(nothing, Caches(len(self.layers), self.layers[0].heads, self.layers[0].kept))

    def stepper(self, memory: Memory) -> StepFunction:
        visible = None if bool(memory.visible.all()) else memory.visible.contiguous()
        seen = Seen.of(memory.keys, visible)

        def step(tokens: Int[Tensor, "rows"], state: TransformerState) -> Step:
            rows, time = len(tokens), state.ancestors.shape[1]
            state.caches.open(rows, time)
            ancestors = torch.cat([state.ancestors, torch.arange(rows)[:, None]], dim=1)
            stream = self.enter(self.embed(tokens), time, time + 1)
            read, weights = self.through(stream, state.caches.pairs, ancestors, seen)
            return Step(self.output(read), weights, TransformerState(ancestors, state.caches))

        return step

    def through(
        self, stream: ResidualStream, own: Float[Tensor, "layers slots heads places both"],
        ancestors: Int[Tensor, "rows time"], seen: Seen,
    ) -> tuple[Rows, Float[Tensor, "rows heads source"]]:  # fmt: skip
        if self.whole is not None:
            return self.whole(stream, own, ancestors, seen)
        weights = list[Tensor]()
        for layer, kept, pairs in zip(self.layers, own, seen.pairs, strict=True):
            stream, looked = layer.step(stream, kept, ancestors, pairs, seen.visible)
            weights.append(looked)
        return stream.read, torch.cat(weights, dim=1)
