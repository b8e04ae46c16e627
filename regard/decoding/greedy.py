"""Take the best word at every step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding.hypothesis import END_MARK, LIMIT, ON_STEP, Found, require_numbers
from regard.decoding.largest import largest
from regard.decoding.ranking import Coverage, normaliser
from regard.decoding.rules import FORBIDDEN, SearchStepFunction
from regard.decoding.streaming import Watch
from regard.decoding.trace import Trace


class Place(NamedTuple):
    """Where, in tokens with room, the next word of each sentence stands."""

    place: Int[Tensor, "batch"]
    norm: Float[Tensor, "batch"]  # what log p of an output is divided by that ends with it


class GreedyProgress(NamedTuple):
    """How far greedy search has come: a tree of tensors, a row for each sentence."""

    state: Any
    words: Int[Tensor, "rows"]  # which the next step reads
    tokens: Int[Tensor, "rows written"]
    lengths: Int[Tensor, "rows"]
    totals: Float[Tensor, "rows"]
    open: Bool[Tensor, "rows"]
    stopped: Bool[Tensor, "rows"]  # by `on_step`
    seen: Float[Tensor, "rows source"] | None  # what coverage adds up

    @property
    def going(self) -> Bool[Tensor, "rows"]:
        """Which sentences are not finished."""
        return self.open


@dataclass(frozen=True)
class GreedySearch:
    """One hypothesis a sentence, as a beam of one would find it; none where the rules of a step allow nothing. They must end
    every output some time."""

    end: int
    normalise: Callable[[int], float]
    coverage: Coverage | None = None
    watch: Watch | None = None
    trace: Trace | None = None

    def begin(self, state: Any, start: Int[Tensor, "batch"], room: int | None = None) -> GreedyProgress:
        nothing, zeros = torch.zeros_like(start, dtype=torch.bool), torch.zeros_like(start, dtype=torch.float32)
        seen = None if self.coverage is None else self.coverage.start(1)
        tokens = no_words(start, self.end, room)
        return GreedyProgress(state, start, tokens, torch.zeros_like(start), zeros, ~nothing, nothing, seen)

    def advance(self, step: SearchStepFunction, before: GreedyProgress, at: Place | None = None) -> GreedyProgress:
        """One word more: behind the last, or, where tokens have room, at a place of each sentence."""
        _, _, tokens, lengths, totals, open_, stopped, seen = before
        found = step(before.words, before.state)
        if self.coverage is not None and seen is not None:
            seen = torch.where(open_[:, None], self.coverage.add(seen, found.weights), seen)
        best, words = largest(found.log_probs)
        if self.trace is not None:
            self.trace.add(found.log_probs[:, None], found.weights, torch.zeros_like(words)[:, None], words[:, None])
        totals = totals + torch.where(open_, best, 0.0)
        tokens = with_word(tokens, torch.where(open_, words, self.end), at)
        lengths = lengths + open_
        open_ = found.still_open(open_ & (words != self.end))
        if self.watch is not None:
            open_, stopped = watched(self.watch, tokens, totals, open_, stopped)
        return GreedyProgress(found.state, words, tokens, lengths, totals, open_, stopped, seen)

    def read(self, found: GreedyProgress) -> list[list[Found]]:
        covered = None if self.coverage is None or found.seen is None else self.coverage.score(found.seen)
        outputs = Written(found.tokens, found.lengths, require_numbers(found.totals), found.stopped)
        each = read(outputs, self.end, self.normalise, covered, self.trace)
        return [[one] if one.log_prob > FORBIDDEN else [] for one in each]


def greedy_search(
    step: SearchStepFunction,
    state: Any,
    start: Int[Tensor, "batch"],
    *,
    end: int,
    length_penalty: float = 0.0,
    length_norm: str = "power",
    coverage: Coverage | None = None,
    watch: Watch | None = None,
    trace: Trace | None = None,
) -> list[list[Found]]:
    search = GreedySearch(end, normaliser(length_norm, length_penalty), coverage, watch, trace)
    return searched(search, step, search.begin(state, start))


def searched(search: Any, step: SearchStepFunction, progress: Any) -> list[list[Found]]:
    """Word by word, until every sentence is finished."""
    going = True
    while going:
        progress = search.advance(step, progress)
        going = bool(progress.going.any())
    found: list[list[Found]] = search.read(progress)
    return found


def no_words(like: Int[Tensor, "*rows"], end: int, room: int | None) -> Int[Tensor, "*rows room"]:
    """Outputs that have not begun. With room for so many words they have a place more, which nobody reads: rows that are
    finished write there."""
    return like.new_full((*like.shape, 0 if room is None else room + 1), end)


def with_word(tokens: Int[Tensor, "*rows written"], words: Int[Tensor, "*rows"], at: Place | None) -> Int[Tensor, "*rows more"]:
    """Each row with one word more, behind the last or at the place of its sentence."""
    if at is None:
        return torch.cat([tokens, words[..., None]], dim=-1)
    index = at.place.view(-1, *[1] * words.dim()).expand(*words.shape, 1)
    return tokens.scatter(-1, index, words[..., None])


def watched(
    watch: Watch, tokens: Int[Tensor, "rows longest"], totals: Float[Tensor, "rows"], going: Bool[Tensor, "rows"],
    stopped: Bool[Tensor, "rows"],
) -> tuple[Bool[Tensor, "rows"], Bool[Tensor, "rows"]]:  # fmt: skip
    """Which rows go on once they have been told of, and which were stopped."""
    wanted = going & watch(tokens, totals, going)
    return wanted, stopped | (going & ~wanted)


class Written(NamedTuple):
    """What was written row by row, `end` after its end."""

    tokens: Int[Tensor, "rows longest"]
    lengths: Int[Tensor, "rows"]  # the end mark counts where there is one
    totals: Float[Tensor, "rows"]
    stopped: Bool[Tensor, "rows"]  # by `on_step`


def read(
    written: Written,
    end: int,
    normalise: Callable[[int], float],
    covered: Float[Tensor, "rows"] | None = None,
    trace: Trace | None = None,
    count: int = 1,
) -> list[Found]:
    """Each row, in the order of sentences; a trace counts `count` rows for each."""
    more = torch.zeros_like(written.totals) if covered is None else covered
    found = []
    for number, (row, length, total, stopped, extra) in enumerate(zip(*(c.tolist() for c in (*written, more)), strict=True)):
        why = END_MARK if row[length - 1] == end else ON_STEP if stopped else LIMIT
        one = Found(cut(row, end), total, total / normalise(length) + extra, why)
        found.append(one if trace is None else trace.describe(one, length, *divmod(number, count)))
    return found


def cut(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens
