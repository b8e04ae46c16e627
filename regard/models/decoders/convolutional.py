"""The convolutional decoder of ConvS2S: gated convolutions over the past, and an attention in every layer."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import UserError
from regard.models.decoders.words import WordDecoder
from regard.models.encoders.convolutional import ConvolutionalConfig
from regard.models.interface import AttentionWeights, Memory, Step, StepFunction, Steps
from regard.models.limits import Limit, limit
from regard.nn.attention import Attention
from regard.nn.convolution import HALF, Convolution, GatedBlock, gated, scale_gradient, start_histories
from regard.nn.dropout import Dropout
from regard.nn.linear import Linear

States = Float[Tensor, "rows time _"]
History = Float[Tensor, "rows past _"]
Histories = tuple[Float[Tensor, "rows _ _"], ...]
Weights = Float[Tensor, "batch 1 queries source"] | None
Read = Callable[[Tensor], tuple[Tensor, Weights]]  # queries -> context, where they looked


class ConvolutionalDecoderConfig(ConvolutionalConfig):
    kind: Literal["convolutional"] = "convolutional"
    tied: bool = False  # the output layer is the embedding, transposed


class ConvolutionalState(NamedTuple):
    places: Int[Tensor, "rows 1"]  # how many steps came before
    histories: Histories  # what each layer's convolution will read again


class Passed(NamedTuple):
    """What came through all layers."""

    outputs: States
    weights: list[Weights]
    histories: Histories


class AttendingBlock(GatedBlock):
    """h = glu(W x_{t-k} .. x_t + b),  d = W_d h + b_d + g,  √½ (x + h + W_c c)  with c what d reads and g the word's embedding
    (Gehring et al. 2017, sections 3.2 and 3.3)."""

    def __init__(
        self, inputs: int, size: int, width: int, embedding: int, dropout: float = 0.0, weight_norm: bool = False
    ) -> None:
        super().__init__(inputs, size, width, dropout, weight_norm)
        self.ask = Convolution(size, embedding, weight_norm=weight_norm)
        self.use = Convolution(embedding, size, weight_norm=weight_norm)

    def bind(self) -> Callable[[Tensor, Tensor, Tensor, Read], tuple[Tensor, Weights, Tensor]]:
        """The block as a function for one pass over a target."""
        after, ask, use, residual = self.convolution.bind_after(), self.ask.bind(), self.use.bind(), self.bind_residual()

        def run(states: States, words: States, history: History, read: Read) -> tuple[States, Weights, History]:
            found, history = after(self.dropout(states), history)
            found = gated(found)
            context, weights = read(ask(found) + words)
            return HALF * (residual(states) + found + use(context)), weights, history

        return run


class ConvolutionalDecoder(WordDecoder):
    Config = ConvolutionalDecoderConfig

    def __init__(self, config: ConvolutionalDecoderConfig, vocabulary: int, memory_size: int, summary_size: int) -> None:
        super().__init__()
        embedding = config.embedding_size
        if memory_size != 2 * embedding:
            raise UserError(
                f"a convolutional decoder reads memory of [what a word became; what it was], each of its embedding_size: "
                f"{2 * embedding} numbers, not {memory_size}; set model.encoder.embedding_size={embedding} of a convolutional "
                "encoder, or take another decoder"
            )
        self.embed = nn.Embedding(vocabulary, embedding)
        self.positions = config.build_positions(self.embed)
        self.enter, self.leave = config.build_ends()
        self.blocks = nn.ModuleList(
            AttendingBlock(inputs, size, width, embedding, config.dropout, config.weight_norm)
            for inputs, (size, width) in zip(config.inputs, config.blocks, strict=True)
        )
        self.attention = Attention(embedding, embedding, score="dot")
        self.dropout = Dropout(config.dropout)
        self.output = Linear(embedding, vocabulary)
        nn.init.normal_(self.output.weight, std=((1 - config.dropout) / embedding) ** 0.5)
        nn.init.zeros_(self.output.bias)
        if config.tied:
            self.output.weight = self.embed.weight

    @property
    def limit(self) -> Limit | None:
        return limit(self.positions.known_places, "longest")

    def prepare(self, memory: Memory) -> Memory:
        """Keys z_j and values √m (z_j + e_j), m the source's length. As all layers read them, z_j learns from their mean."""
        states, words = memory.states.chunk(2, dim=-1)
        states = scale_gradient(states, 1 / len(self.blocks))
        length = memory.visible.sum(dim=1).to(states.dtype)
        values = (states + words) * length.sqrt()[:, None, None]
        return memory._replace(keys=self.attention.prepare(states, memory.visible)._replace(values=values[:, None]))

    def start(self, memory: Memory) -> ConvolutionalState:
        places = torch.zeros(memory.states.shape[0], 1, dtype=torch.long, device=memory.states.device)
        return ConvolutionalState(places, start_histories(self.blocks, memory.states[:, 0]))

    def reader(self, memory: Memory, return_weights: bool) -> Read:
        """Attention for rows of hypotheses or for all steps of a target: both are so many queries a sentence."""

        def read(queries: Float[Tensor, "rows time size"]) -> tuple[Float[Tensor, "rows time size"], Weights]:
            folded = queries.reshape(memory.states.shape[0], -1, queries.shape[-1])
            context, weights, _ = self.attention(folded, memory.keys, return_weights)
            return context.view(queries.shape), weights

        return read

    def bind(self) -> Callable[[Tensor, Histories, Read], Passed]:
        """All layers as a function for one pass over a target."""
        enter, leave, blocks = self.enter.bind(), self.leave.bind(), [block.bind() for block in self.blocks]  # type: ignore[operator]

        def run(words: States, histories: Histories, read: Read) -> Passed:
            states, looks, left = enter(words), [], []
            for block, history in zip(blocks, histories, strict=True):
                states, weights, history = block(states, words, history, read)
                looks.append(weights)
                left.append(history)
            return Passed(leave(states), looks, tuple(left))

        return run

    def placed_words(self, tokens: Int[Tensor, "rows time"], places: Int[Tensor, "#rows time"]) -> States:
        found: Tensor = self.dropout(self.positions.embed(self.embed(tokens), places))
        return found

    def stepper(self, memory: Memory) -> StepFunction:
        move = self.stepper_within(memory, 0)

        def step(tokens: Int[Tensor, "rows"], state: ConvolutionalState) -> Step:
            self.positions.check(int(state.places.max()) + 1)
            return move(tokens, state)

        return step

    def stepper_within(self, memory: Memory, room: int) -> StepFunction:
        """Rows that have no place left stay at the last."""
        self.positions.check(room)
        run, read, known = self.bind(), self.reader(memory, return_weights=True), self.positions.known_places

        def step(tokens: Int[Tensor, "rows"], state: ConvolutionalState) -> Step:
            state = state if known is None else state._replace(places=state.places.clamp(max=known - 1))
            outputs, looks, histories = run(self.placed_words(tokens[:, None], state.places), state.histories, read)
            weights = torch.cat([one for one in looks if one is not None], dim=1).transpose(1, 2).flatten(0, 1)
            return Step(self.output(outputs[:, 0]), weights, ConvolutionalState(state.places + 1, histories))

        return step

    def forward(self, tokens: Int[Tensor, "batch target"], memory: Memory, return_weights: bool = False) -> Steps:
        self.positions.check(tokens.shape[1])
        places = torch.arange(tokens.shape[1], device=tokens.device)[None]
        histories = self.start(memory).histories
        outputs, looks, _ = self.bind()(self.placed_words(tokens, places), histories, self.reader(memory, return_weights))
        return Steps(outputs, torch.cat([one for one in looks if one is not None], dim=1) if return_weights else None)

    def attention_weights(self, tokens: Int[Tensor, "1 target"], memory: Memory) -> list[AttentionWeights]:
        """Each layer has one."""
        weights = self(tokens, memory, return_weights=True).weights[0]
        return [AttentionWeights("cross", layer, one[None]) for layer, one in enumerate(weights, start=1)]

    def finished(self, outputs: Float[Tensor, "batch target size"]) -> Float[Tensor, "batch target size"]:
        dropped: Tensor = self.dropout(outputs)
        return dropped
