"""The Transformer's decoder: it looks at its own past and at the memory, in every layer."""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.tokenizers import PAD
from regard.models.attention import memory_limit
from regard.models.decoders.words import WordDecoder
from regard.models.interface import AttentionWeights, Memory, Step, StepFunction, Steps
from regard.models.limits import Limit, smallest
from regard.models.transformer import HeadsConfig, StackConfig, cross_weights, self_weights, stack_limit
from regard.nn.attention import PreparedMemory, QueryPositions, StepPosition
from regard.nn.copying import COPIES
from regard.nn.transformer.layers import LayerState
from regard.recipe import name_of


class TransformerDecoderConfig(StackConfig):
    kind: Literal["transformer"] = "transformer"
    cross_attention: HeadsConfig = HeadsConfig()  # to the memory
    tied: bool = True  # the output layer is the embedding, transposed
    output_bias: bool = False  # a number a word, which the paper has not
    copy_words: Annotated[str, name_of(COPIES, "way of copying")] | None = None  # from the source, known words or not


class Keys(NamedTuple):
    """What is computed once a sentence."""

    layers: Sequence[PreparedMemory]
    copying: Float[Tensor, "batch source output"] | None


class TransformerState(NamedTuple):
    words: Int[Tensor, "rows time"]  # read so far
    layers: tuple[LayerState, ...]


class RoomyState(NamedTuple):
    """One whose caches have all their places from the start."""

    places: Int[Tensor, "rows 1"]  # how many words each row has read; one for which there is no room stays at the last place
    layers: tuple[LayerState, ...]


class TransformerDecoder(WordDecoder):
    Config = TransformerDecoderConfig

    def __init__(self, config: TransformerDecoderConfig, vocabulary: int, memory_size: int, summary_size: int) -> None:
        super().__init__()
        self.stack = config.stack(config.cross_attention, memory_size, causal=True)
        draws = any(layer.to_memory.selection.draws for layer in self.stack.layers)
        self.add_words(
            config.hidden_size, vocabulary, tied=config.tied, bias=config.output_bias, copy_words=config.copy_words,
            memory_size=memory_size, draws=draws,
        )  # fmt: skip

    @property
    def limit(self) -> Limit | None:
        return stack_limit(self.stack)

    @property
    def memory_limit(self) -> Limit | None:
        return smallest(*(memory_limit(layer.to_memory, "cross_attention.longest") for layer in self.stack.layers))

    def prepare(self, memory: Memory) -> Memory:
        layers = [layer.to_memory.prepare(memory.states, memory.visible) for layer in self.stack.layers]
        return memory._replace(keys=Keys(layers, self.copy_keys(memory)))

    def start(self, memory: Memory) -> TransformerState:
        nothing = memory.states.new_zeros(memory.states.shape[0], 0, self.stack.size)
        layers = tuple(
            LayerState(layer.self_attention.open(nothing), layer.to_memory.start(keys))
            for layer, keys in zip(self.stack.layers, memory.keys.layers, strict=True)
        )
        return TransformerState(torch.zeros(nothing.shape[:2], dtype=torch.long, device=nothing.device), layers)

    def start_within(self, memory: Memory, room: int) -> RoomyState:
        words, layers = self.start(memory)
        pairs = zip(self.stack.layers, layers, strict=True)
        roomy = (state._replace(cache=layer.self_attention.with_room(state.cache, room)) for layer, state in pairs)
        return RoomyState(words.new_zeros(len(words), 1), tuple(roomy))

    def stepper(self, memory: Memory) -> StepFunction:
        move = self.bind(memory)

        def step(tokens: Int[Tensor, "rows"], state: TransformerState) -> Step:
            time = state.words.shape[1]
            moment = StepPosition(QueryPositions(torch.full((tokens.shape[0], 1), time, device=tokens.device)), time + 1)
            found = move(tokens, moment, state.layers)
            return found._replace(state=TransformerState(torch.cat([state.words, tokens[:, None]], dim=1), found.state))

        return step

    def stepper_within(self, memory: Memory, room: int) -> StepFunction:
        move = self.bind(memory)

        def step(tokens: Int[Tensor, "rows"], state: RoomyState) -> Step:
            where = QueryPositions(state.places.clamp(max=room - 1))
            found = move(tokens, StepPosition(where, room, ragged=True, in_place=True), state.layers)
            return found._replace(state=RoomyState(state.places + 1, found.state))

        return step

    def bind(self, memory: Memory) -> Callable[[Tensor, StepPosition, Sequence[LayerState]], Step]:
        """One step of all rows at a position; its State is that of the layers."""
        pairs = zip(self.stack.layers, memory.keys.layers, strict=True)
        looks, batch = [layer.to_memory.bind(keys) for layer, keys in pairs], memory.states.shape[0]

        def move(tokens: Int[Tensor, "rows"], moment: StepPosition, layers: Sequence[LayerState]) -> Step:
            top, after, weights = self.stack.step(self.words(tokens), moment, layers, looks)
            outputs = top.view(batch, top.shape[0] // batch, -1)
            logits = self.logits(Steps(outputs, copying=self.copying(outputs, memory))).flatten(0, 1)
            return Step(logits, torch.cat(weights, dim=1), after)

        return move

    def forward(self, tokens: Int[Tensor, "batch target"], memory: Memory, return_weights: bool = False) -> Steps:
        result = self.stack(self.words(tokens), None, memory.keys.layers, return_weights, present=tokens != PAD)
        copying = self.copying(result.states, memory)
        return Steps(result.states, result.weights, copying, result.choice, result.cost)

    def attention_weights(self, tokens: Int[Tensor, "1 target"], memory: Memory) -> list[AttentionWeights]:
        result = self.stack(self.words(tokens), None, memory.keys.layers, True, True)
        steps = Steps(result.states, copying=self.copying(result.states, memory))
        return [*cross_weights(result.passed), *self_weights("decoder", result.passed), *self.copy_weights(steps)]
