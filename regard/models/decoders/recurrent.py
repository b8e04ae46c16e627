"""The recurrent decoder: any cell, any attention, and the context used as Bahdanau, as Luong or not at all."""

from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from regard.data.tokenizers import PAD, UNKNOWN
from regard.models.attention import AttentionConfig
from regard.models.decoders.context import CONTEXTS, Inputs, Moment, Parts, RecurrentState
from regard.models.interface import Decoder, Memory, Step, StepFunction, Steps
from regard.nn.attention import Glance, Prepared, Trace
from regard.nn.attention.attention import join_choices
from regard.nn.cells import CELLS, Cell, CellList, CellState
from regard.nn.copying import COPIES, Copying, copying_loss, extended_logits
from regard.nn.cross_entropy import linear_cross_entropy
from regard.nn.dropout import Dropout
from regard.nn.recurrent import CONNECTIONS, recurrent_mask
from regard.nn.scan import scan
from regard.nn.shared import Linear, shared
from regard.recipe import Positive, Rate, Section, choose, name_of


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
    copy_words: Annotated[str, name_of(COPIES, "way of copying")] | None = None  # from the source, known words or not

    @model_validator(mode="after")
    def attention_and_its_use(self) -> "RecurrentDecoderConfig":
        if (self.attention is None) != (self.context == "none"):
            raise ValueError("`attention: null` goes with `context: none`, and the other way round")
        return self


class Keys(NamedTuple):
    """What is computed once a sentence."""

    attention: Prepared | None
    copying: Float[Tensor, "batch source output"] | None


class RecurrentDecoder(Decoder):
    Config = RecurrentDecoderConfig

    def __init__(self, config: RecurrentDecoderConfig, vocabulary: int, memory_size: int, summary_size: int) -> None:
        super().__init__()
        hidden, embedding = config.hidden_size, config.embedding_size
        self.context = choose(CONTEXTS, config.context, "use of the context")()
        self.output_size = embedding if config.tied else hidden
        self.attention = None if config.attention is None else config.attention.build(hidden, memory_size)
        context_size = 0 if self.attention is None else self.attention.context_size
        fed = self.context.fed_size(context_size, self.output_size)
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
        self.has_attention, self.copies_words = self.attention is not None, config.copy_words is not None
        self.copy_words = None
        if config.copy_words is not None:
            self.copy_words = choose(COPIES, config.copy_words, "way of copying")(self.output_size, memory_size)
        draws = self.attention is not None and self.attention.selection.draws
        self.register_buffer("usual_reward", torch.zeros(vocabulary) if draws else None)
        self.bridge = Linear(summary_size, config.layers * cell.starts * hidden)
        self.join = Linear(hidden + context_size, self.output_size)
        self.output = Linear(self.output_size, vocabulary)
        if config.tied:
            self.output.weight = self.embed.weight

    def prepare(self, memory: Memory) -> Memory:
        attention = None if self.attention is None else self.attention.prepare(memory.states, memory.visible)
        copying = None if self.copy_words is None else self.copy_words.prepare(memory.states)
        return memory._replace(keys=Keys(attention, copying))

    def start(self, memory: Memory) -> RecurrentState:
        """s_0 = tanh(W summary), for each layer and each vector of its state (Bahdanau et al. 2015, A.2.2)."""
        width = self.first.starts
        parts = torch.tanh(self.bridge(memory.summary)).chunk(len(self.cells) * width, dim=-1)
        cells = tuple(cell.start(*parts[at * width : (at + 1) * width]) for at, cell in enumerate(self.cells))
        fed = 0 if self.from_fed is None else self.from_fed.in_features
        trace = None if self.attention is None else self.attention.start(memory.keys.attention)
        return RecurrentState(cells, memory.summary.new_zeros(len(memory.summary), fed), trace)

    @property
    def first(self) -> Cell:
        return self.cells[0]

    def bind(self, memory: Memory) -> Parts:
        """The decoder's pieces as functions for one pass over a target."""
        join = shared(self.join)
        return Parts(
            stack=self.bind_stack(memory.summary),
            look=nowhere if self.attention is None else self.attention.bind(memory.keys.attention),
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

    def words(self, tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows size"]:
        """Embeddings; a word that was copied though nobody knows it is read as the unknown one."""
        known = tokens.where(tokens < self.embed.num_embeddings, UNKNOWN) if self.copies_words else tokens
        found: Tensor = self.dropout(self.embed(known))
        return found

    def stepper(self, memory: Memory) -> StepFunction:
        parts, project = self.bind(memory), self.first.bind_project()

        def step(tokens: Int[Tensor, "rows"], state: RecurrentState) -> Step:
            words = self.words(tokens)
            moment = self.context.step(parts, Inputs(project(words), words), state)
            outputs = self.context.output(parts, moment.known).view(len(memory.summary), -1, self.output_size)
            logits = self.logits(Steps(outputs, copying=self.copying(outputs, memory)))
            return Step(logits.flatten(0, 1), moment.weights, moment.state)

        return step

    def forward(self, tokens: Int[Tensor, "batch target"], memory: Memory, look: bool = False) -> Steps:
        words, state = self.words(tokens), self.start(memory)
        stepwise = self.from_fed is not None or (self.attention is not None and self.attention.sequential)
        steps = self.one_by_one(words, memory, state) if stepwise else self.at_once(words, memory, state, look)
        return steps._replace(copying=self.copying(steps.outputs, memory))

    def one_by_one(self, words: Float[Tensor, "batch target size"], memory: Memory, state: RecurrentState) -> Steps:
        parts, moments = self.bind(memory), list[Moment]()
        shares = self.first.project(words.transpose(0, 1))  # of all steps at once, and each step's in one piece
        for inputs in map(Inputs, shares.unbind(dim=0), words.unbind(dim=1)):
            moments.append(self.context.step(parts, inputs, state))
            state = moments[-1].state
        outputs = self.context.output(parts, torch.stack([moment.known for moment in moments], dim=1))
        weights = torch.stack([moment.weights for moment in moments if moment.weights is not None], dim=2)
        choices = [moment.choice for moment in moments if moment.choice is not None]
        return Steps(outputs, weights, choice=join_choices(choices))

    def at_once(self, words: Float[Tensor, "batch target size"], memory: Memory, state: RecurrentState, look: bool) -> Steps:
        """Nothing is fed back: the whole target in one scan a layer and one attention."""
        inputs = hidden = words
        for depth, (cell, start) in enumerate(zip(self.cells, state.cells, strict=True)):
            inputs = self.dropout(self.connections[depth - 1](inputs, hidden)) if depth else words
            hidden, _ = scan(cell, inputs, start, mask=self.mask(cell, words))
        if self.attention is None:
            return Steps(torch.tanh(self.join(hidden)))
        context, weights, choice = self.attention(hidden, memory.keys.attention, look)
        return Steps(torch.tanh(self.join(torch.cat([hidden, context], dim=-1))), weights, choice=choice)

    def copying(self, outputs: Float[Tensor, "batch target size"], memory: Memory) -> Copying | None:
        if self.copy_words is None:
            return None
        assert memory.copies is not None, "a decoder that copies is told what"
        found: Copying = self.copy_words(outputs, memory.keys.copying, memory.visible, *memory.copies)
        return found

    def loss(self, steps: Steps, target: Int[Tensor, "batch target"], label_smoothing: float = 0.0) -> Float[Tensor, ""]:
        outputs = self.dropout(steps.outputs)
        if steps.copying is None:
            return linear_cross_entropy(outputs, self.output, target, PAD, label_smoothing)
        return copying_loss(outputs, self.output, target, steps.copying, PAD, label_smoothing)

    def logits(self, steps: Steps) -> Float[Tensor, "batch target vocabulary"]:
        scores: Tensor = self.output(self.dropout(steps.outputs))
        return scores if steps.copying is None else extended_logits(scores, steps.copying)


def nowhere(query: Tensor, trace: Trace | None) -> Glance:
    raise AssertionError("a decoder without attention does not look")
