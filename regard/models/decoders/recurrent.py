"""The recurrent decoder: any cell, any attention score, and the context used as Bahdanau, as Luong or not at all."""

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from regard.data.tokenizers import PAD
from regard.models.decoders.context import CONTEXTS, Inputs, Parts, RecurrentState
from regard.models.interface import Decoder, Memory, Step, StepFunction, Steps
from regard.nn.attention import SCORES, attend, mix, normalise
from regard.nn.cells import CELLS, Cell, CellList, CellState
from regard.nn.cross_entropy import linear_cross_entropy
from regard.nn.dropout import Dropout
from regard.nn.recurrent import CONNECTIONS, recurrent_mask
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
    connections: Annotated[str, name_of(CONNECTIONS, "connection")] = "plain"  # between layers
    dropout: Rate = 0.0
    recurrent_dropout: Rate = 0.0  # on what the past gives, one mask a target
    layer_norm: bool = False  # inside the cell
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
        sizes = [embedding] + [hidden] * (config.layers - 1)
        self.cells = CellList(cell(size, hidden, config.layer_norm) for size in sizes)
        connection = choose(CONNECTIONS, config.connections, "connection")
        self.connections = nn.ModuleList(connection(size, hidden) for size in sizes[:-1])
        self.recurrent_dropout = config.recurrent_dropout
        self.from_fed = Linear(fed, self.first.width, bias=False) if fed else None
        self.score, self.has_attention = None, config.attention is not None
        if config.attention is not None:
            score = choose(SCORES, config.attention.score, "attention score")
            self.score = score(hidden, memory_size, config.attention.size)
        self.bridge = Linear(summary_size, config.layers * cell.starts * hidden)
        self.join = Linear(joined, self.output_size)
        self.output = Linear(self.output_size, vocabulary)
        if config.tied:
            self.output.weight = self.embed.weight

    def prepare(self, memory: Memory) -> Memory:
        return memory if self.score is None else memory._replace(keys=self.score.prepare(memory.states))

    def start(self, memory: Memory) -> RecurrentState:
        """s_0 = tanh(W summary), for each layer and each vector of its state (Bahdanau et al. 2015, A.2.2)."""
        width = self.first.starts
        parts = torch.tanh(self.bridge(memory.summary)).chunk(len(self.cells) * width, dim=-1)
        cells = tuple(cell.start(*parts[at * width : (at + 1) * width]) for at, cell in enumerate(self.cells))
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
            stack=self.bind_stack(memory.summary),
            look=look,
            feed=shared(self.from_fed) if self.from_fed is not None else None,
            join=lambda known: torch.tanh(join(known)),
        )

    def bind_stack(self, rows: Tensor) -> Callable[[Inputs, tuple[CellState, ...]], tuple[CellState, ...]]:
        """One step of all layers."""
        steps = [cell.bind(self.mask(cell, rows)) for cell in self.cells]
        projects = [cell.bind_project() for cell in self.cells]
        connections = [connection.bind() for connection in self.connections]  # type: ignore[operator]

        def stack(first: Inputs, states: tuple[CellState, ...]) -> tuple[CellState, ...]:
            new, inputs = [steps[0](first.share, states[0])], first.words
            for step, project, connect, state in zip(steps[1:], projects[1:], connections, states[1:], strict=True):
                inputs = self.dropout(connect(inputs, new[-1].hidden))
                new.append(step(project(inputs), state))
            return tuple(new)

        return stack

    def mask(self, cell: Cell, rows: Tensor) -> Tensor | None:
        return recurrent_mask(cell, rows, self.recurrent_dropout, self.training)

    def stepper(self, memory: Memory) -> StepFunction:
        parts, project = self.bind(memory), self.first.bind_project()

        def step(tokens: Int[Tensor, "rows"], state: RecurrentState) -> Step:
            words = self.dropout(self.embed(tokens))
            moment = self.context.step(parts, Inputs(project(words), words), state)
            return Step(self.logits(self.context.output(parts, moment.known)), moment.weights, moment.state)

        return step

    def forward(self, tokens: Int[Tensor, "batch target"], memory: Memory) -> Steps:
        words = self.dropout(self.embed(tokens))
        state = self.start(memory)
        if self.from_fed is None:
            return self.at_once(words, memory, state)
        parts, known, weights = self.bind(memory), [], []
        shares = self.first.project(words)  # of all steps at once
        for inputs in map(Inputs, shares.unbind(dim=1), words.unbind(dim=1)):
            moment = self.context.step(parts, inputs, state)
            state = moment.state
            known.append(moment.known)
            weights.append(moment.weights)
        looks = [look for look in weights if look is not None]
        return Steps(self.context.output(parts, torch.stack(known, dim=1)), torch.stack(looks, dim=1))

    def at_once(self, words: Float[Tensor, "batch target size"], memory: Memory, state: RecurrentState) -> Steps:
        """Nothing is fed back: the whole target in one scan a layer and one attention."""
        inputs = hidden = words
        for depth, (cell, start) in enumerate(zip(self.cells, state.cells, strict=True)):
            inputs = self.dropout(self.connections[depth - 1](inputs, hidden)) if depth else words
            hidden, _ = scan(cell, inputs, start, mask=self.mask(cell, words))
        if self.score is None:
            return Steps(torch.tanh(self.join(hidden)), None)
        assert memory.keys is not None
        context, weights = attend(self.score(hidden, memory.keys), memory.states, memory.visible[:, None])
        return Steps(torch.tanh(self.join(torch.cat([hidden, context], dim=-1))), weights)

    def loss(
        self, outputs: Float[Tensor, "batch target size"], target: Int[Tensor, "batch target"], label_smoothing: float = 0.0
    ) -> Float[Tensor, ""]:
        return linear_cross_entropy(self.dropout(outputs), self.output, target, PAD, label_smoothing)

    def logits(self, outputs: Float[Tensor, "*rows size"]) -> Float[Tensor, "*rows vocabulary"]:
        scores: Tensor = self.output(self.dropout(outputs))
        return scores
