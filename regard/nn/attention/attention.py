"""Attention: score x scope x selection x heads, for all queries at once or step by step."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.errors import UserError
from regard.nn.attention.attend import AttentionTask, attend, bind_mix, weigh
from regard.nn.attention.pairs import Network, Queries, Scoring
from regard.nn.attention.scopes import SCOPES, KeyRange, ScopeQueries, mask
from regard.nn.attention.scores import SCORES
from regard.nn.attention.selections import SELECTIONS, HardSample, Soft
from regard.nn.kernels.attention import additive_step
from regard.nn.kernels.attention.short import Joint
from regard.nn.kernels.machine import here
from regard.nn.linear import Linear, Projection, joined, linear
from regard.nn.positions import Positions

States = Float[Tensor, "batch source memory"]
Rows = Float[Tensor, "rows _"]


class PreparedMemory(NamedTuple):
    """A memory as this attention sees it, made once."""

    keys: Float[Tensor, "batch heads fewer size"]
    values: Float[Tensor, "batch values fewer value"]
    counts: Bool[Tensor, "batch fewer"]  # which of them are there
    visible: Bool[Tensor, "batch source"]  # of the memory as it was
    whole: bool  # whether nothing is padding
    fused: Joint | None = None  # keys and values, and queries before them, where one product made them

    @property
    def lengths(self) -> Int[Tensor, "batch"]:
        return self.visible.sum(dim=1)


class AttentionState(NamedTuple):
    """What an attention remembers of earlier steps, one row per hypothesis."""

    steps: Int[Tensor, "rows 1"]
    reached: Int[Tensor, "rows heads"]  # the key of the last step's largest weight
    coverage: Float[Tensor, "rows heads _"]  # Σ of the weights so far; of no width without coverage


class AttentionStep(NamedTuple):
    """One query per row: context, weights, and what the next step has to know."""

    context: Rows
    weights: Float[Tensor, "rows heads source"]
    attention_state: AttentionState
    choice: HardSample | None = None  # of one step per row


Selection = tuple[Tensor, Tensor, HardSample | None]  # context, weights, what was drawn
Select = Callable[[Tensor, Tensor, AttentionState], Selection]  # of projected queries, the queries themselves, the state
EVERYTHING = KeyRange()


class QueryPositions(NamedTuple):
    """Where queries stand in their sequence."""

    places: Int[Tensor, "#batch target"] | None = None  # 0 and up unless given
    prefix: Int[Tensor, "batch"] | None = None  # so many keys are visible to all queries, causal or not
    positions: Positions | None = None  # how queries and keys know how far apart they are

    def of(self, query: Tensor) -> Int[Tensor, "#batch target"]:
        return torch.arange(query.shape[1], device=query.device)[None] if self.places is None else self.places

    def turn(self, keys: Tensor, fused: Joint | None, states: Tensor) -> tuple[Tensor, Joint | None]:
        """Keys of these states that know where they stand; the product they lie in is theirs no more if they were turned."""
        if self.positions is None:
            return keys, fused
        return self.positions.turn(keys, self.of(states)), None if self.positions.turns else fused


ANYWHERE = QueryPositions()


class AttentionOutput(NamedTuple):
    """All queries at once."""

    context: Float[Tensor, "batch target context"]
    weights: Float[Tensor, "batch heads target source"] | None
    choice: HardSample | None


class Attention(nn.Module):
    """Any score, scope and selection, with any number of heads.

    The context is what the heads read, side by side: of the memory itself, or of `values` elements projected from it, which the
    heads share out. `coverage` lets scores know how much weight each key has had already.
    """

    def __init__(
        self, query_size: int, memory_size: int, *, score: str = "additive", size: int | None = None, heads: int = 1,
        values: int | None = None, scope: str = "global", window: int = 10, causal: bool = False, selection: str = "soft",
        temperature: float = 1.0, softness: float = 0.5, activation: str = "tanh", longest: int = 512, coverage: bool = False,
        bias: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.heads = heads
        self.score = SCORES[score](query_size, memory_size, size, heads, activation, longest, bias)
        self.scope = SCOPES[scope](query_size, memory_size, heads, window, causal)
        self.selection = SELECTIONS[selection](temperature, softness)
        if values is not None and values % heads:
            raise UserError(f"{heads} heads cannot share {values} values: take a number that {heads} divides")
        self.project_value = None if values is None else Linear(memory_size, values, bias=bias)
        self.context_size = heads * memory_size if values is None else values
        parts = self.score.prepare(torch.zeros(1, 1, memory_size)).shape[-1] if coverage else 0
        self.covered = nn.Parameter(torch.zeros(heads, parts)) if coverage else None

    @property
    def sequential(self) -> bool:
        """Whether a step must know the weights of earlier ones."""
        return self.scope.moves or self.covered is not None

    def prepare(
        self, memory: States, visible: Bool[Tensor, "batch source"] | None = None, where: QueryPositions = ANYWHERE
    ) -> PreparedMemory:
        """`visible` None: nothing is padding."""
        there = torch.ones(memory.shape[:2], dtype=torch.bool, device=memory.device) if visible is None else visible
        seen, counts = self.scope.compress(memory, there)
        keys, values, fused = self.keys_and_values(seen, where)
        keys, fused = where.turn(keys, fused, memory)
        return PreparedMemory(keys, values, counts, there, visible is None, fused)

    def keys_and_values(self, seen: States, where: QueryPositions) -> tuple[Tensor, Tensor, Joint | None]:
        """By one product if kernels can read it as it lies."""
        if self.project_value is None:
            return self.score.prepare(seen, where.places), seen[:, None], None
        both = self.score.together()
        if both is not None and torch.is_grad_enabled() and here(seen):
            (keys, values), fused = self.project(seen, both[1], self.project_value)
            return keys, values, fused
        return self.score.prepare(seen, where.places), self.score.split(self.project_value(seen)), None

    def project(self, states: States, *maps: nn.Linear | Projection) -> tuple[list[Tensor], Joint | None]:
        """A head's share of each of several maps of the same states, by one product; which is joint if all are of one size."""
        parts = [Projection(one.weight, one.bias) for one in maps]
        sizes = [len(part.weight) for part in parts]
        joint = linear(states, *joined(parts))
        shares = [self.score.split(part) for part in torch.split(joint, sizes, dim=-1)]
        width = sizes[0] // self.heads  # not -1: there may be no states yet
        return shares, joint.view(*joint.shape[:2], len(parts), self.heads, width) if len(set(sizes)) == 1 else None

    def start(self, prepared: PreparedMemory) -> AttentionState:
        """Before the first step, one row per sentence."""
        rows, width = prepared.counts.shape[0], prepared.counts.shape[1] if self.covered is not None else 0
        nothing = torch.zeros(rows, self.heads, dtype=torch.long, device=prepared.counts.device)
        return AttentionState(nothing[:, :1], nothing, prepared.keys.new_zeros(rows, self.heads, width, dtype=torch.float32))

    def forward(
        self, query: Float[Tensor, "batch target query"], prepared: PreparedMemory, return_weights: bool = False,
        path: str | None = None, where: QueryPositions = ANYWHERE,
    ) -> AttentionOutput:  # fmt: skip
        """Queries of known places, all at once."""
        if self.sequential:
            return self.one_by_one(query, prepared)
        return self.read(self.score.bind_query()(query), query, prepared, return_weights, path, where)

    def read(
        self, queries: Queries, query: Float[Tensor, "batch target query"], prepared: PreparedMemory,
        return_weights: bool = False, path: str | None = None, where: QueryPositions = ANYWHERE,
    ) -> AttentionOutput:  # fmt: skip
        """`queries` as the score projected them."""
        bias = None
        if where.positions is not None:
            bias = where.positions.bias(queries, where.of(query), prepared.keys.shape[2])
            queries = where.positions.turn(queries, where.of(query))
        keys, values, counts, visible, whole, fused = prepared
        hidden, key_range = None if whole else counts, self.key_range(query, prepared, where)
        task = AttentionTask(self.score.pair, queries, keys, values, hidden, key_range, self.selection, bias, fused)
        context, weights, choice = attend(task, return_weights, path)
        weights = self.scope.expand(weights, visible) if weights is not None and return_weights else None
        return AttentionOutput(context.transpose(1, 2).flatten(2), weights, choice)

    def key_range(
        self, query: Float[Tensor, "batch target query"], prepared: PreparedMemory, where: QueryPositions
    ) -> KeyRange:
        if not self.scope.bounded:
            return EVERYTHING
        places = where.of(query).expand(query.shape[:2])
        nowhere = places[:, None].expand(-1, self.heads, -1)
        return self.scope.key_range(ScopeQueries(query, places, nowhere, where.prefix), prepared.lengths)

    def one_by_one(self, query: Float[Tensor, "batch target query"], prepared: PreparedMemory) -> AttentionOutput:
        step, state, steps = self.bind(prepared), self.start(prepared), list[AttentionStep]()
        for row in query.unbind(dim=1):
            steps.append(step(row, state))
            state = steps[-1].attention_state
        return gather(steps)

    def bind(self, prepared: PreparedMemory) -> Callable[[Rows, AttentionState | None], AttentionStep]:
        """One step as a function for one pass over a target; a sentence's hypotheses share its memory."""
        select, project, batch = self.bind_select(prepared), self.score.bind_query(), prepared.keys.shape[0]

        def step(query: Rows, state: AttentionState | None) -> AttentionStep:
            assert state is not None
            queries = query.view(batch, query.shape[0] // batch, -1)
            context, weights, choice = select(project(queries), queries, state)
            choice = None if choice is None else by_row(choice)
            shown = self.scope.expand(weights, prepared.visible).transpose(1, 2).flatten(0, 1)
            after = self.next_state(state, weights)
            return AttentionStep(context.transpose(1, 2).flatten(0, 1).flatten(1), shown, after, choice)

        return step

    def bind_select(self, prepared: PreparedMemory) -> Select:
        keys, values, counts, *_ = prepared
        if self.covered is None and self.one_launch(keys, values):
            return self.bind_kernel(prepared)
        score, key_range_of, read = self.bind_score(keys), self.bind_key_range(prepared), bind_mix(values, self.heads)
        padding = ~mask(EVERYTHING, counts)

        def select(queries: Tensor, asked: Tensor, state: AttentionState) -> Selection:
            key_range = key_range_of(asked, state)
            hidden = padding if key_range is EVERYTHING else ~mask(key_range, counts)
            weights, choice = weigh(score(queries, state), hidden, key_range, self.selection)
            return read(weights), weights, choice

        return select

    def bind_key_range(self, prepared: PreparedMemory) -> Callable[[Tensor, AttentionState], KeyRange]:
        if not self.scope.bounded:
            return lambda asked, state: EVERYTHING
        lengths = prepared.lengths

        def key_range(asked: Float[Tensor, "batch queries size"], state: AttentionState) -> KeyRange:
            each = asked.shape[:2]
            queries = ScopeQueries(asked, state.steps.view(each), state.reached.view(*each, -1).mT)
            return self.scope.key_range(queries, lengths)

        return key_range

    def one_launch(self, keys: Tensor, values: Tensor) -> bool:
        """Whether one kernel does all of a step: softmax of a tanh network over all keys."""
        pair, each = self.score.pair, values.expand(-1, self.heads, -1, -1)
        plain = type(self.selection) is Soft and not self.scope.bounded
        return isinstance(pair, Network) and pair.activation == "tanh" and plain and additive_step.applies(keys, each)

    def bind_kernel(self, prepared: PreparedMemory) -> Select:
        pair = self.score.pair
        assert isinstance(pair, Network)
        values = prepared.values.expand(-1, self.heads, -1, -1)
        use = additive_step.bind_step(prepared.keys, values, prepared.counts, pair.score_vector / self.selection.temperature)

        def select(queries: Tensor, asked: Tensor, state: AttentionState) -> Selection:
            context, weights = use(queries.transpose(1, 2))
            return context.transpose(1, 2), weights, None

        return select

    def bind_score(self, keys: Tensor) -> Callable[[Tensor, AttentionState], Tensor]:
        if self.covered is None:
            score: Scoring = self.score.pair.bind(keys)
            return lambda queries, state: score(queries)
        pair, weight, whole = self.score.pair, self.covered.to(keys.dtype), keys.contiguous()

        def covered(queries: Float[Tensor, "batch heads queries size"], state: AttentionState) -> Tensor:
            batch, _, number, _ = queries.shape
            coverage = state.coverage.view(batch, number, self.heads, -1).transpose(1, 2)
            return pair.covered(queries, whole, coverage.to(keys.dtype), weight)

        return covered

    def next_state(self, state: AttentionState, weights: Float[Tensor, "batch heads queries fewer"]) -> AttentionState:
        steps, reached, coverage = state
        if self.scope.bounded:
            steps = steps + 1
        if self.scope.moves:
            reached = weights.detach().argmax(dim=-1).transpose(1, 2).flatten(0, 1)
        if self.covered is not None:
            coverage = coverage + weights.transpose(1, 2).flatten(0, 1)
        return AttentionState(steps, reached, coverage)


def gather(steps: list[AttentionStep]) -> AttentionOutput:
    """Steps side by side."""
    context = torch.stack([one.context for one in steps], dim=1)
    weights = torch.stack([one.weights for one in steps], dim=2)
    choices = [one.choice for one in steps if one.choice is not None]
    return AttentionOutput(context, weights, join_choices(choices))


def join_choices(choices: list[HardSample]) -> HardSample | None:
    """Of steps taken one by one, which is done where a step is known to later ones."""
    if not choices:
        return None
    log_prob = torch.cat([one.log_prob for one in choices], dim=1)
    return HardSample(log_prob, torch.cat([one.entropy for one in choices], dim=1), lasting=True)


def by_row(choice: HardSample) -> HardSample:
    return choice._replace(log_prob=choice.log_prob.flatten()[:, None], entropy=choice.entropy.flatten()[:, None])
