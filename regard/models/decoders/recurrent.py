"""The recurrent decoder: any cell, any attention score, and the context used as Bahdanau, as Luong or not at all."""

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from regard.data.tokenizers import PAD
from regard.models.decoders.context import CONTEXTS, Parts, RecurrentState
from regard.models.interface import Decoder, Memory, Step, StepFunction, Steps
from regard.nn.attention import SCORES, attend, mix, normalise
from regard.nn.cells import CELLS, Cell, CellList, CellState
from regard.nn.cross_entropy import linear_cross_entropy
from regard.nn.dropout import Dropout
from regard.nn.scan import scan
from regard.nn.shared import Linear, shared
from regard.recipe import Positive, Rate, Section, choose, name_of


class AttentionConfig(Section):
    score: Annotated[str, name_of(SCORES, "attention score")] = "additive"
    size: Positive | None = None  # of the additive score's inner layer; the decoder's hidden size unless given


class RecurrentDecoderConfig(Section):
    kind: Literal["recurrent"] = "recurrent"
    cell: Annotated[str, name_of(CELLS, "cell")] = "gru"
    embedding_size: Positive = 256
    hidden_size: Positive = 256
    layers: Positive = 1
    attention: AttentionConfig | None = AttentionConfig()
    context: Annotated[str, name_of(CONTEXTS, "use of the context")] = "into_cell"
    dropout: Rate = 0.0
    tied: bool = False  # the output layer is the embedding, transposed

    @model_validator(mode="after")
    def attention_and_its_use(self) -> "RecurrentDecoderConfig":
        if (self.attention is None) != (self.context == "none"):
            raise ValueError("`attention: null` goes with `context: none`, and the other way round")
        return self


class RecurrentDecoder(Decoder):
    Config = RecurrentDecoderConfig

    def __init__(self, config: RecurrentDecoderConfig, vocabulary: int, memory_size: int, summary_size: int) -> None:
        super().__init__()
        hidden, embedding = config.hidden_size, config.embedding_size
        self.context = choose(CONTEXTS, config.context, "use of the context")()
        self.output_size = embedding if config.tied else hidden
        fed = self.context.fed_size(memory_size, self.output_size)
        joined = hidden + (memory_size if config.attention else 0)
        self.embed = nn.Embedding(vocabulary, embedding)
        nn.init.normal_(self.embed.weight, std=embedding**-0.5)
        self.dropout = Dropout(config.dropout)
        cell = choose(CELLS, config.cell, "cell")
        self.cells = CellList(cell(embedding if layer == 0 else hidden, hidden) for layer in range(config.layers))
        self.from_fed = Linear(fed, cell.gates * hidden, bias=False) if fed else None
        self.score, self.has_attention = None, config.attention is not None
        if config.attention is not None:
            score = choose(SCORES, config.attention.score, "attention score")
            self.score = score(hidden, memory_size, config.attention.size)
        self.bridge = Linear(summary_size, config.layers * len(cell.State._fields) * hidden)
        self.join = Linear(joined, self.output_size)
        self.output = Linear(self.output_size, vocabulary)
        if config.tied:
            self.output.weight = self.embed.weight

    def prepare(self, memory: Memory) -> Memory:
        return memory if self.score is None else memory._replace(keys=self.score.prepare(memory.states))

    def start(self, memory: Memory) -> RecurrentState:
        """s_0 = tanh(W summary), for each layer and each part of its state (Bahdanau et al. 2015, A.2.2)."""
        parts = torch.tanh(self.bridge(memory.summary)).chunk(len(self.cells) * len(self.first.State._fields), dim=-1)
        width = len(self.first.State._fields)
        cells = tuple(self.first.State(*parts[at : at + width]) for at in range(0, len(parts), width))
        fed = 0 if self.from_fed is None else self.from_fed.in_features
        return RecurrentState(cells, memory.summary.new_zeros(len(memory.summary), fed))

    @property
    def first(self) -> Cell:
        return self.cells[0]

    def bind(self, memory: Memory) -> Parts:
        """The decoder's pieces as functions for one pass over a target."""
        score = None if self.score is None or memory.keys is None else self.score.bind(memory.keys)
        read, visible = mix(memory.states), memory.visible[:, None]

        def look(query: Float[Tensor, "rows query"]) -> tuple[Tensor, Tensor]:
            assert score is not None
            queries = query.view(len(memory.states), -1, query.shape[-1])  # a sentence's hypotheses share its memory
            weights = normalise(score(queries), visible)
            return read(weights).flatten(0, 1), weights.flatten(0, 1)

        join = shared(self.join)
        return Parts(
            stack=self.bind_stack(),
            look=look,
            feed=shared(self.from_fed) if self.from_fed is not None else None,
            join=lambda known: torch.tanh(join(known)),
        )

    def bind_stack(self) -> Callable[[Tensor, tuple[CellState, ...]], tuple[CellState, ...]]:
        """One step of all layers: (gates of the first from its input, states) -> states."""
        steps = [cell.bind() for cell in self.cells]
        inputs = [shared(cell.from_input) for cell in list(self.cells)[1:]]

        def stack(gates: Tensor, states: tuple[CellState, ...]) -> tuple[CellState, ...]:
            new = [steps[0](gates, states[0])]
            for step, from_input, state in zip(steps[1:], inputs, states[1:], strict=True):
                new.append(step(from_input(self.dropout(new[-1].hidden)), state))
            return tuple(new)

        return stack

    def stepper(self, memory: Memory) -> StepFunction:
        parts = self.bind(memory)

        def step(tokens: Int[Tensor, "rows"], state: RecurrentState) -> Step:
            gates = self.first.from_input(self.dropout(self.embed(tokens)))
            moment = self.context.step(parts, gates, state)
            return Step(self.logits(self.context.output(parts, moment.known)), moment.weights, moment.state)

        return step

    def forward(self, tokens: Int[Tensor, "batch target"], memory: Memory) -> Steps:
        words = self.dropout(self.embed(tokens))
        state = self.start(memory)
        if self.from_fed is None:
            return self.at_once(words, memory, state)
        parts, known, weights = self.bind(memory), [], []
        for gates in self.first.from_input(words).unbind(dim=1):  # the words' share of the gates, all steps at once
            moment = self.context.step(parts, gates, state)
            state = moment.state
            known.append(moment.known)
            weights.append(moment.weights)
        looks = [look for look in weights if look is not None]
        return Steps(self.context.output(parts, torch.stack(known, dim=1)), torch.stack(looks, dim=1))

    def at_once(self, words: Float[Tensor, "batch target size"], memory: Memory, state: RecurrentState) -> Steps:
        """Nothing is fed back: the whole target in one scan a layer and one attention."""
        for depth, (cell, start) in enumerate(zip(self.cells, state.cells, strict=True)):
            words, _ = scan(cell, self.dropout(words) if depth else words, start)
        if self.score is None:
            return Steps(torch.tanh(self.join(words)), None)
        assert memory.keys is not None
        context, weights = attend(self.score(words, memory.keys), memory.states, memory.visible[:, None])
        return Steps(torch.tanh(self.join(torch.cat([words, context], dim=-1))), weights)

    def loss(
        self, outputs: Float[Tensor, "batch target size"], target: Int[Tensor, "batch target"], label_smoothing: float = 0.0
    ) -> Float[Tensor, ""]:
        return linear_cross_entropy(self.dropout(outputs), self.output, target, PAD, label_smoothing)

    def logits(self, outputs: Float[Tensor, "*rows size"]) -> Float[Tensor, "*rows vocabulary"]:
        scores: Tensor = self.output(self.dropout(outputs))
        return scores
