"""The recurrent decoder: any cell, any attention, and the context used as Bahdanau, as Luong or not at all."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.tokenizers import PAD
from regard.models.attention import memory_limit
from regard.models.connections import places_below
from regard.models.decoders.context import CONTEXTS, QUERY_LAYERS, DecoderStep, Inputs, LayersRun, Parts, RecurrentState
from regard.models.decoders.recurrent_config import RecurrentDecoderConfig as RecurrentDecoderConfig
from regard.models.decoders.words import WordDecoder
from regard.models.interface import AttentionWeights, Memory, Step, StepFunction, Steps
from regard.models.limits import Limit
from regard.models.looking import recurrence_weights
from regard.nn.attention import AttentionState, AttentionStep, PreparedMemory
from regard.nn.attention.attention import join_choices
from regard.nn.copying import COPIES
from regard.nn.dropout import Dropout
from regard.nn.linear import Linear, bind_linear
from regard.nn.recurrent.cells import CELLS, Cell, CellList, CellState
from regard.nn.recurrent.connections import CONNECTIONS, connection_over
from regard.nn.recurrent.layers import recurrent_mask, weight_dropped
from regard.nn.recurrent.scan import scan
from regard.nn.transformer.experts import Between, Mixed, Use, total
from regard.recipe import choose

Words = Float[Tensor, "batch target size"]
Present = Bool[Tensor, "batch target"] | None  # what is no padding, if experts have to know


class Keys(NamedTuple):
    """What is computed once a sentence."""

    attention: PreparedMemory | None
    copying: Float[Tensor, "batch source output"] | None


class Scanned(NamedTuple):
    """What layers gave over all steps."""

    top: Float[Tensor, "batch target size"]
    states: list[Tensor]  # h of each layer
    last: tuple[CellState, ...]
    use: Use | None  # of experts


class RecurrentDecoder(WordDecoder):
    Config: ClassVar[Any] = RecurrentDecoderConfig
    weight_drop: float = 0.0  # share of the recurrent weights that a pass of training does without

    def __init__(self, config: RecurrentDecoderConfig, vocabulary: int, memory_size: int, summary_size: int) -> None:
        super().__init__()
        hidden, embedding = config.hidden_size, config.embedding_size
        self.context = choose(CONTEXTS, config.context, "use of the context")(
            choose(QUERY_LAYERS, config.asks, "layer that asks")
        )
        self.output_size = embedding if config.tied else hidden
        self.attention = None if config.attention is None else config.attention.build(hidden, memory_size)
        context_size = 0 if self.attention is None else self.attention.context_size
        fed = self.context.fed_size(context_size, self.output_size)
        self.embed = nn.Embedding(vocabulary, embedding)
        nn.init.normal_(self.embed.weight, std=embedding**-0.5)
        self.dropout = Dropout(config.dropout)
        cell = choose(CELLS, config.cell, "cell")
        self.cells, self.connections = CellList(), nn.ModuleList()
        top_size = self.build_layers(config, cell, self.context.beside_size(context_size))
        self.recurrent_dropout = config.recurrent_dropout
        self.from_fed = Linear(fed, self.first.width, bias=False) if fed else None
        self.gate = Linear(hidden, 1) if self.context.gated else None
        self.has_attention, self.copies_words = self.attention is not None, config.copy_words is not None
        self.copy_words = None
        if config.copy_words is not None:
            self.copy_words = choose(COPIES, config.copy_words, "way of copying")(self.output_size, memory_size)
        draws = self.attention is not None and self.attention.selection.draws
        self.register_buffer("reward_baseline", torch.zeros(vocabulary) if draws else None)
        self.start_from, projected = config.start_from, config.layers * cell.starts * hidden
        self.bridge = Linear(summary_size, projected) if config.start_from == "projected" else None
        self.join = Linear(top_size + context_size, self.output_size)
        self.output = Linear(self.output_size, vocabulary)
        if config.tied:
            self.output.weight = self.embed.weight

    def build_layers(self, config: RecurrentDecoderConfig, cell: type[Cell], beside: int) -> int:
        """Layers and what lies over them; the size of what the last gives."""
        size, hidden, kind = config.embedding_size, config.hidden_size, choose(CONNECTIONS, config.connections, "connection")
        self.between: Between | None = None
        self.experts_under = 0 if config.experts is None else config.experts.place(config.layers)
        for layer in range(1, config.layers + 1):
            if config.experts is not None and layer == self.experts_under:
                self.between = config.experts.between(size)
            self.cells.append(cell(size + beside if layer > 1 else size, hidden, config.layer_norm))
            over = connection_over(layer, config.layers, kind, config.connect_from, config.connect_top)
            connection = over(size, hidden, self.first.width, top=layer == config.layers, attention=config.attend)
            self.connections.append(connection)
            size = connection.size
        return size

    @property
    def limit(self) -> Limit | None:
        return places_below(self.connections)

    @property
    def memory_limit(self) -> Limit | None:
        return None if self.attention is None else memory_limit(self.attention, "attention.longest")

    def prepare(self, memory: Memory) -> Memory:
        attention = None if self.attention is None else self.attention.prepare(memory.states, memory.visible)
        return memory._replace(keys=Keys(attention, self.copy_keys(memory)))

    def start(self, memory: Memory) -> RecurrentState:
        fed = 0 if self.from_fed is None else self.from_fed.in_features
        attention_state = None if self.attention is None else self.attention.start(memory.keys.attention)
        connections = tuple(connection.start(memory.states) for connection in self.connections)  # type: ignore[operator]
        nothing = memory.states.new_zeros(memory.states.shape[0], fed)
        return RecurrentState(self.start_cells(memory), connections, nothing, attention_state)

    def start_cells(self, memory: Memory) -> tuple[CellState, ...]:
        """s_0 = tanh(W summary), for each layer and each vector of its state (Bahdanau et al. 2015, A.2.2); or what the
        encoder's layer ended with (Sutskever et al. 2014); or 0."""
        if self.start_from == "encoder":
            return tuple(side_by_side(memory.last[depth :: len(self.cells)]) for depth in range(len(self.cells)))
        if self.bridge is None:
            return tuple(cell.zero_state(memory.summary) for cell in self.cells)
        width = self.first.starts
        parts = torch.tanh(self.bridge(memory.summary)).chunk(len(self.cells) * width, dim=-1)
        return tuple(cell.start(*parts[at * width : (at + 1) * width]) for at, cell in enumerate(self.cells))

    @property
    def first(self) -> Cell:
        return self.cells[0]

    def bind(self, memory: Memory, layers: int | None = None) -> Parts:
        """The decoder's pieces (only the lowest `layers`, if told) as functions for one pass over a target."""
        join, gate = bind_linear(self.join), None if self.gate is None else bind_linear(self.gate)
        return Parts(
            stack=self.bind_stack(memory.states, layers),
            attend=nowhere if self.attention is None else self.attention.bind(memory.keys.attention),
            feed=bind_linear(self.from_fed) if self.from_fed is not None else None,
            join=lambda known: torch.tanh(join(known)),
            gate=None if gate is None else lambda query: torch.sigmoid(gate(query)),
        )

    def bind_stack(self, rows: Tensor, layers: int | None) -> Callable[[Inputs, RecurrentState], LayersRun]:
        """One step of the layers."""
        cells = list(self.cells)[:layers]
        steps = [cell.bind(self.mask(cell, rows)) for cell in cells]
        projects = [cell.bind_project() for cell in cells]
        connections = [connection.bind_step() for connection in self.connections[:layers]]  # type: ignore[operator]

        def stack(first: Inputs, before: RecurrentState) -> LayersRun:
            new, known, inputs, share, use = [], [], first.words, first.share, None
            for depth, (step, state) in enumerate(zip(steps, before.cells, strict=True)):
                if depth:
                    inputs, here = self.enter(depth, inputs, first.present)
                    use = here or use
                    share = projects[depth](with_beside(inputs, first.beside))
                new.append(step(share, state))
                inputs, remembered = connections[depth](inputs, new[-1].hidden, share, before.connections[depth])
                known.append(remembered)
            return LayersRun(before._replace(cells=tuple(new), connections=tuple(known)), inputs, use)

        return stack

    def enter(self, depth: int, inputs: Float[Tensor, "*rows size"], present: Bool[Tensor, "*rows"] | None) -> Mixed:
        """What a layer above the lowest reads: what lies below, by way of the experts if they stand there."""
        use = None
        if self.between is not None and depth + 1 == self.experts_under:
            inputs, use = self.between(inputs, present)
        return Mixed(self.dropout(inputs), use)

    def mask(self, cell: Cell, rows: Tensor) -> Tensor | None:
        return recurrent_mask(cell, rows, self.recurrent_dropout, self.training)

    def words(self, tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows size"]:
        found: Tensor = self.dropout(super().words(tokens))
        return found

    def stepper(self, memory: Memory) -> StepFunction:
        parts, project = self.bind(memory), self.first.bind_project()

        def step(tokens: Int[Tensor, "rows"], state: RecurrentState) -> Step:
            words = self.words(tokens)
            moment = self.context.step(parts, Inputs(project(words), words), state)
            outputs = self.context.output(parts, moment.known).view(memory.states.shape[0], -1, self.output_size)
            logits = self.logits(Steps(outputs, copying=self.copying(outputs, memory)))
            return Step(logits.flatten(0, 1), moment.weights, moment.state)

        return step

    def forward(self, tokens: Int[Tensor, "batch target"], memory: Memory, return_weights: bool = False) -> Steps:
        words, state, present = self.words(tokens), self.start(memory), None if self.between is None else tokens != PAD
        stepwise = self.from_fed is not None or (self.attention is not None and self.attention.sequential)
        rest = memory, state, present
        steps = self.one_by_one(words, *rest) if stepwise else self.at_once(words, *rest, return_weights)
        return steps._replace(copying=self.copying(steps.outputs, memory))

    def one_by_one(self, words: Words, memory: Memory, state: RecurrentState, present: Present) -> Steps:
        """Step by step as far up as a step must know of the one before; the layers above that in one scan each."""
        start, layers = state.cells, 1 if self.context.needs_lowest_only else len(self.cells)
        parts, moments, state = self.bind(memory, layers), list[DecoderStep](), state._replace(cells=state.cells[:layers])
        for inputs in self.inputs(words, present):
            moments.append(self.context.step(parts, inputs, state))
            state = moments[-1].state
        known, use = torch.stack([moment.known for moment in moments], dim=1), total(moment.use for moment in moments)
        if layers < len(start):
            known, use = self.run_layers(known, start, present)
        weights = torch.stack([moment.weights for moment in moments if moment.weights is not None], dim=2)
        choices = [moment.choice for moment in moments if moment.choice is not None]
        return Steps(self.context.output(parts, known), weights, choice=join_choices(choices), cost=self.cost(use))

    def inputs(self, words: Words, present: Present) -> Iterator[Inputs]:
        """Of each step; their shares are computed for all at once, and each lies in one piece."""
        shares = self.first.project(words.transpose(0, 1)).unbind(dim=0)
        rows = [None] * len(shares) if present is None else present.unbind(dim=1)
        for share, word, row in zip(shares, words.unbind(dim=1), rows, strict=True):
            yield Inputs(share, word, present=row)

    def cost(self, use: Use | None) -> Float[Tensor, ""] | None:
        return None if self.between is None else self.between.experts.cost(use)

    def run_layers(
        self, known: Float[Tensor, "batch target known"], start: tuple[CellState, ...], present: Present
    ) -> tuple[Tensor, Use | None]:
        """[what the lowest layer gives; c] of all steps -> [what the top gives; c]."""
        lowest = self.connections[0].size
        inputs, context = known[..., :lowest], known[..., lowest:]
        beside = context if self.context.beside_size(1) else None
        scanned = self.scan_layers(inputs, start, 1, beside, present)
        return torch.cat([scanned.top, context], dim=-1), scanned.use

    def scan_layers(
        self,
        inputs: Words,
        start: tuple[CellState, ...],
        first: int = 0,
        beside: Float[Tensor, "batch target beside"] | None = None,
        present: Present = None,
        lengths: Int[Tensor, "batch"] | None = None,
    ) -> "Scanned":
        """All steps of layer `first` and of those above."""
        states, last, use = list[Tensor](), list[CellState](), None
        for depth in range(first, len(self.cells)):
            inputs, here = self.enter(depth, inputs, present) if depth else (inputs, None)
            use = here or use
            cell, connection, read = self.cells[depth], self.connections[depth], with_beside(inputs, beside)
            hidden, end = scan(
                weight_dropped(cell, self.weight_drop), read, start[depth], lengths, mask=self.mask(cell, inputs)
            )
            inputs = connection(inputs, hidden, connection.share([cell], read))  # type: ignore[operator]
            states.append(hidden)
            last.append(end)
        return Scanned(inputs, states, tuple(last), use)

    def at_once(self, words: Words, memory: Memory, state: RecurrentState, present: Present, return_weights: bool) -> Steps:
        """Nothing is fed back: the whole target in one scan a layer and one attention."""
        top, states, _, use = self.scan_layers(words, state.cells, present=present)
        if self.attention is None:
            return Steps(torch.tanh(self.join(top)), cost=self.cost(use))
        context, weights, choice = self.attention(states[self.context.query_layer], memory.keys.attention, return_weights)
        outputs = torch.tanh(self.join(torch.cat([top, context], dim=-1)))
        return Steps(outputs, weights, choice=choice, cost=self.cost(use))

    def attention_weights(self, tokens: Int[Tensor, "1 target"], memory: Memory) -> list[AttentionWeights]:
        """Step by step, as outputs are written."""
        step, state, steps = self.stepper(memory), self.start(memory), list[Step]()
        for token in tokens.unbind(dim=1):
            steps.append(step(token, state))
            state = steps[-1].state
        looks = [one.weights for one in steps if one.weights is not None]
        cross = [AttentionWeights("cross", 1, torch.stack(looks, dim=2)[0])] if looks else []
        itself = recurrence_weights(self.connections, [one.state.cells for one in steps])
        return [*cross, *itself, *self.copy_weights(self(tokens, memory))]

    def finished(self, outputs: Float[Tensor, "batch target size"]) -> Float[Tensor, "batch target size"]:
        dropped: Tensor = self.dropout(outputs)
        return dropped


def side_by_side(layers: Sequence[Sequence[CellState]]) -> CellState:
    """The states of all directions of a layer, and of those at its depth in other columns, as one."""
    states = [state for layer in layers for state in layer]
    return type(states[0])(*(torch.cat(parts, dim=-1) for parts in zip(*states, strict=True)))


def with_beside(inputs: Float[Tensor, "*rows size"], beside: Float[Tensor, "*rows beside"] | None) -> Tensor:
    return inputs if beside is None else torch.cat([inputs, beside.to(inputs.dtype)], dim=-1)


def nowhere(query: Tensor, attention_state: AttentionState | None) -> AttentionStep:
    raise AssertionError("a decoder without attention does not look")
