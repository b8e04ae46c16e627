"""A decoder alone: source and target are one sequence, and the loss is on the target's part (Liu et al. 2018, T-D)."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data.batching import Batch
from regard.data.fields import Shape
from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.models.decoders.words import WordDecoder
from regard.models.generator import Generator, Words
from regard.models.interface import AttentionWeights, Memory, Step, StepFunction, Steps
from regard.models.limits import Limits, under
from regard.models.transformer import StackConfig, self_weights, stack_limit
from regard.nn.attention import QueryPositions, StepPosition
from regard.nn.lengths import length_mask
from regard.nn.state import repeat_rows
from regard.nn.transformer.layers import LayerState, TransformerOutput


class DecoderAloneConfig(StackConfig):
    columns: ClassVar[dict[str, str]] = {"source": "text", "target": "text"}
    kind: Literal["decoder_alone"] = "decoder_alone"
    two_way_source: bool = False  # whether the source's words see each other, or only those before
    tied: bool = True  # the output layer is the embedding, transposed
    output_bias: bool = False  # a number a word, which the paper has not
    copies_words: ClassVar[bool] = False
    shares_words: ClassVar[bool] = True


class AloneState(NamedTuple):
    words: Int[Tensor, "rows time"]  # of the target, read so far
    lengths: Int[Tensor, "rows"]  # of the sources
    layers: tuple[LayerState, ...]


class RoomyState(NamedTuple):
    """One whose caches have all their places from the start."""

    places: Int[Tensor, "rows 1"]  # where the next word stands; one for which there is no room stays at the last place
    lengths: Int[Tensor, "rows"]
    layers: tuple[LayerState, ...]


class AloneDecoder(WordDecoder):
    """The stack; the target's start mark stands between source and target."""

    def __init__(self, config: DecoderAloneConfig, vocabulary: int) -> None:
        super().__init__()
        self.two_way_source = config.two_way_source
        self.stack = config.stack(causal=True)
        self.stack.positions.causal = not config.two_way_source  # whether no word ahead is seen
        self.add_words(config.hidden_size, vocabulary, tied=config.tied, bias=config.output_bias)

    def prefix(self, lengths: Int[Tensor, "batch"]) -> Int[Tensor, "batch"] | None:
        return lengths if self.two_way_source else None

    def read(self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, "batch"]) -> Memory:
        """The source's part, and what every layer keeps of it. No source word sees the target, so it is read once."""
        visible = length_mask(lengths, source.shape[1])
        result = self.stack(self.words(source), visible, prefix=self.prefix(lengths))
        pairs = zip(self.stack.layers, result.passed, strict=True)
        caches = [layer.self_attention.keep(one.read, one.prepared, lengths) for layer, one in pairs]
        states, keys = result.states, tuple(LayerState(cache, None) for cache in caches)
        return Memory(states, visible, states[:, 0], keys, cost=result.cost)

    def start(self, memory: Memory) -> AloneState:
        lengths = memory.visible.sum(dim=1)
        return AloneState(torch.zeros(lengths.shape[0], 0, dtype=torch.long, device=lengths.device), lengths, memory.keys)

    def start_within(self, memory: Memory, room: int) -> RoomyState:
        _, lengths, layers = self.start(memory)
        pairs, width = zip(self.stack.layers, layers, strict=True), self.width(memory, room)
        roomy = (state._replace(cache=layer.self_attention.with_room(state.cache, width)) for layer, state in pairs)
        return RoomyState(lengths[:, None], lengths, tuple(roomy))

    def width(self, memory: Memory, room: int) -> int:
        """Places of source and target; no row has more than the stack, however wide the padding is."""
        limit, wanted = stack_limit(self.stack), memory.visible.shape[1] + room
        return wanted if limit is None else min(wanted, limit.places)

    def stepper(self, memory: Memory) -> StepFunction:
        source, move = memory.visible.shape[1], self.bind_step(memory)

        def step(tokens: Int[Tensor, "rows"], state: AloneState) -> Step:
            words, lengths, layers = state
            time = words.shape[1]
            where = QueryPositions((lengths + time)[:, None], self.prefix(lengths))
            found = move(tokens, StepPosition(where, source + time + 1, ragged=True, return_weights=True), layers)
            return found._replace(state=AloneState(torch.cat([words, tokens[:, None]], dim=1), lengths, found.state))

        return step

    def stepper_within(self, memory: Memory, room: int) -> StepFunction:
        width, move = self.width(memory, room), self.bind_step(memory)

        def step(tokens: Int[Tensor, "rows"], state: RoomyState) -> Step:
            places, lengths, layers = state
            where = QueryPositions(places.clamp(max=width - 1), self.prefix(lengths))
            found = move(tokens, StepPosition(where, width, ragged=True, return_weights=True, in_place=True), layers)
            return found._replace(state=RoomyState(places + 1, lengths, found.state))

        return step

    def bind_step(self, memory: Memory) -> Callable[[Tensor, StepPosition, Sequence[LayerState]], Step]:
        """One step of all rows at a position; its State is that of the layers."""

        def move(tokens: Int[Tensor, "rows"], moment: StepPosition, layers: Sequence[LayerState]) -> Step:
            top, after, looks = self.stack.step(self.words(tokens), moment, layers, [None] * len(layers))
            visible = memory.visible.repeat_interleave(tokens.shape[0] // memory.visible.shape[0], dim=0)
            return Step(self.output(top), on_source(looks, visible).squeeze(2), after)

        return move

    def whole(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, "batch"],
        target: Int[Tensor, "batch target"],
        return_weights: bool,
    ) -> Steps:
        """Each row's target right behind its source, all in one pass."""
        places = lengths[:, None] + torch.arange(target.shape[1], device=target.device)
        tokens = torch.nn.functional.pad(source, (0, target.shape[1])).scatter(1, places, target)
        behind = torch.arange(tokens.shape[1], device=tokens.device) >= lengths[:, None] + target.shape[1]
        present = (tokens != PAD) & ~behind
        tokens, present, places = self.cut(tokens, present, places)
        result = self.stack(
            self.words(tokens), None, prefix=self.prefix(lengths), return_self_weights=return_weights, present=present
        )
        outputs = result.states.gather(1, places[..., None].expand(-1, -1, self.stack.size))
        if not return_weights:
            return Steps(outputs, cost=result.cost)
        visible = length_mask(lengths, source.shape[1])
        return Steps(outputs, self.looks(result, places, visible), cost=result.cost, visible=visible)

    def cut(
        self, tokens: Int[Tensor, "batch time"], present: Bool[Tensor, "batch time"], places: Int[Tensor, "batch target"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Without the padding that there are no places for, where the longest source and the longest target are two rows'."""
        limit = stack_limit(self.stack)
        if limit is None or tokens.shape[1] <= limit.places:
            return tokens, present, places
        graph = tokens.is_cuda and torch.cuda.is_current_stream_capturing()  # then nothing may wait, and rows have been checked
        if not graph and int(present.sum(dim=1).max()) > limit.places:
            return tokens, present, places  # the stack refuses a row that is itself too long
        return tokens[:, : limit.places], present[:, : limit.places], places.clamp(max=limit.places - 1)

    def sequence_weights(self, source: Int[Tensor, "1 source"], target: Int[Tensor, "1 target"]) -> list[AttentionWeights]:
        """Of one row, over source and target as one sequence."""
        lengths = torch.full((1,), source.shape[1], device=source.device)
        words = self.words(torch.cat([source, target], dim=1))
        return self_weights("sequence", self.stack(words, None, prefix=self.prefix(lengths), return_self_weights=True).passed)

    def looks(
        self, result: TransformerOutput, places: Int[Tensor, "batch target"], visible: Bool[Tensor, "batch source"]
    ) -> Float[Tensor, "batch 1 target source"]:
        weights = [one.self_attention.weights for one in result.passed if one.self_attention.weights is not None]
        rows = [one.gather(2, index_like(places, one)) for one in weights]
        return on_source(rows, visible)


def index_like(places: Int[Tensor, "batch target"], weights: Float[Tensor, "batch heads time width"]) -> Tensor:
    return places[:, None, :, None].expand(-1, weights.shape[1], -1, weights.shape[3])


def on_source(
    weights: list[Float[Tensor, "batch heads target width"]], visible: Bool[Tensor, "batch source"]
) -> Float[Tensor, "batch 1 target source"]:
    """The share of all layers' and heads' looks that falls on the source; spread evenly where none does."""
    source = visible.shape[1]
    found = torch.stack([one[..., :source].mean(dim=1, keepdim=True) for one in weights]).sum(0) * visible[:, None, None]
    total, even = found.sum(dim=-1, keepdim=True), visible / visible.sum(dim=1, keepdim=True).clamp(min=1)
    return torch.where(total > 0, found / total.clamp(min=torch.finfo(found.dtype).tiny), even[:, None, None])


class DecoderAlone(Generator):
    Config = DecoderAloneConfig
    decoder: AloneDecoder

    def __init__(self, config: DecoderAloneConfig, source: Shape, target: Shape) -> None:
        super().__init__()
        if source.kind != target.kind:
            raise UserError(
                "model.kind=decoder_alone reads source and target by one table of words: a source of kind "
                f"`{source.kind}` needs an encoder (model.kind=sequence_to_sequence)"
            )
        if source != target:
            raise UserError(
                "model.kind=decoder_alone reads source and target by one table of words, and the vocabularies have "
                f"{source.sizes[0]} and {target.sizes[0]}: set data.tokenizer.shared=true"
            )
        self.decoder = AloneDecoder(config, target.sizes[0])

    @property
    def limits(self) -> Limits:
        return Limits(both=under("model", stack_limit(self.decoder.stack)))

    def encode(self, batch: Batch) -> Memory:
        source = batch["source"]
        return self.decoder.read(source.values, source.lengths)

    def attention_weights(self, batch: Batch) -> list[AttentionWeights]:
        return self.decoder.sequence_weights(batch["source"].values, self.read_words(batch))

    def teacher_forced(self, batch: Batch, words: Words, return_weights: bool = False) -> Steps:
        source = batch["source"]
        return self.decoder.whole(source.values, source.lengths, words, return_weights)

    def teacher_forced_each(self, batch: Batch, words: Int[Tensor, "rows target"], count: int) -> Steps:
        source = batch["source"]
        return self.decoder.whole(*repeat_rows((source.values, source.lengths), count), words, False)
