"""Beam search over any `step`; it knows nothing of models or rules, only of a tree of states."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding.greedy import Place, cut, no_words, searched, with_word
from regard.decoding.hypothesis import END_MARK, LIMIT, NO_NUMBER, ON_STEP, Found
from regard.decoding.largest import top
from regard.decoding.ranking import STOPS, Coverage, normaliser
from regard.decoding.rules import SearchStep, SearchStepFunction
from regard.decoding.streaming import Watch
from regard.decoding.trace import Trace
from regard.errors import UserError
from regard.nn.state import repeat_rows, select_rows
from regard.recipe import choose

IMPOSSIBLE = float("-inf")
ENDS = (END_MARK, LIMIT, ON_STEP)


class Beam(NamedTuple):
    """The open hypotheses of every sentence, best first; those of finished sentences are impossible."""

    tokens: Int[Tensor, "batch width length"]
    words: Int[Tensor, "batch width"]  # the last of them
    totals: Float[Tensor, "batch width"]
    parents: Int[Tensor, "batch width"]  # whose children they are, among those of the step before

    def scores(self, norm: float | Tensor, covered: Float[Tensor, "batch width"] | None) -> Float[Tensor, "batch width"]:
        """What they are ranked by if they are closed now; `covered` is told of their parents."""
        by_length = self.totals / norm
        return by_length if covered is None else by_length + covered.gather(1, self.parents)

    @property
    def origin(self) -> tuple[Int[Tensor, "batch width"], Int[Tensor, "batch width"]]:
        """Whose children they are, and by which word."""
        return self.parents, self.words

    def only(self, these: Bool[Tensor, "batch width"]) -> "Beam":
        return self._replace(totals=self.totals.masked_fill(~these, IMPOSSIBLE))


class Pool(NamedTuple):
    """The best closed hypotheses of every sentence, best first."""

    tokens: Int[Tensor, "batch width length"]
    totals: Float[Tensor, "batch width"]
    scores: Float[Tensor, "batch width"]
    ends: Int[Tensor, "batch width"]  # why each closed and where it stood: width * (its number in ENDS) + its place

    def add(self, beam: Beam, scores: Float[Tensor, "batch width"], end: int, ends: Int[Tensor, "#batch width"]) -> "Pool":
        """The best of what is here and what has just closed."""
        room = beam.tokens.shape[-1] - self.tokens.shape[-1]
        before = torch.nn.functional.pad(self.tokens, (0, room), value=end) if room else self.tokens
        tokens = torch.cat([before, beam.tokens], dim=1)
        best, index = torch.cat([self.scores, scores], dim=1).topk(self.scores.shape[1])
        totals = torch.cat([self.totals, beam.totals], dim=1).gather(1, index)
        all_ends = torch.cat([self.ends, ends.expand_as(self.ends)], dim=1).gather(1, index)
        return Pool(tokens.gather(1, index[..., None].expand(-1, -1, tokens.shape[-1])), totals, best, all_ends)


class BeamProgress(NamedTuple):
    """How far a beam search has come: a tree of tensors, so many rows for each sentence."""

    state: Any
    words: Int[Tensor, "rows"]  # which the next step reads
    beam: Beam
    pool: Pool
    closed: Int[Tensor, "batch"]
    broken: Bool[Tensor, "batch"]  # which have met not-a-number
    seen: Float[Tensor, "rows source"] | None  # what coverage adds up

    @property
    def going(self) -> Bool[Tensor, "batch"]:
        """Which sentences, or groups of them, are not finished."""
        return (self.beam.totals > IMPOSSIBLE).any(dim=1)


@dataclass(frozen=True)
class BeamSearch:
    """The best outputs of each sentence by log p / norm(length) + what `coverage` makes of where they looked.

    A sentence is finished when `width` of its hypotheses have closed and none that is open leads them all (`goes_on`), or when
    a rule of the step cuts those still open, which closes them. With `groups`, each is a beam of its own of `width` hypotheses
    and is finished for itself.
    """

    width: int
    end: int
    normalise: Callable[[int], float]
    goes_on: Callable[[Tensor, int, Tensor, Tensor], Tensor]  # an entry of STOPS
    coverage: Coverage | None = None
    watch: Watch | None = None
    trace: Trace | None = None
    groups: int = 1
    diversity: float = 0.0

    def begin(self, state: Any, start: Int[Tensor, "batch"], room: int | None = None) -> BeamProgress:
        width, start = self.width, start.repeat_interleave(self.groups)
        words, nothing = start[:, None].expand(-1, width), torch.full((len(start), width), IMPOSSIBLE, device=start.device)
        tokens, totals = no_words(words, self.end, room), nothing.clone()
        totals[:, 0] = 0.0  # all hypotheses start equal: keep one, or the first step returns copies of it
        beam = Beam(tokens, words, totals, torch.zeros_like(words))
        pool, broken = Pool(tokens, nothing, nothing, torch.zeros_like(words)), torch.zeros_like(start, dtype=torch.bool)
        seen = None if self.coverage is None else self.coverage.start(width * self.groups)
        state = repeat_rows(state, width * self.groups)
        return BeamProgress(state, start.repeat_interleave(width), beam, pool, torch.zeros_like(start), broken, seen)

    def advance(self, step: SearchStepFunction, before: BeamProgress, at: Place | None = None) -> BeamProgress:
        """One word more: behind the last, or, where tokens have room, at a place of each sentence."""
        (batch, width), end, covered = before.beam.totals.shape, self.end, None
        rows = (torch.arange(batch, device=before.closed.device)[:, None] * width + before.beam.parents).flatten()
        state, seen = select_rows((before.state, before.seen), rows)
        found = step(before.words, state)
        log_probs, weights, state, last, *_ = found
        if self.coverage is not None and seen is not None:
            seen = self.coverage.add(seen, weights)
            covered = self.coverage.score(seen).view(batch, width)
        beam, ended = self.extend(before.beam, found, at)
        broken = before.broken | (beam.totals.sum(dim=1) + ended.totals.sum(dim=1)).isnan()
        if self.trace is not None:
            made = [torch.cat(sides, dim=1) for sides in zip(ended.origin, beam.origin, strict=True)]
            self.trace.add(log_probs.view(batch, width, -1), weights, *made)
        norm = self.normalise(beam.tokens.shape[-1]) if at is None else at.norm[:, None]
        order = torch.arange(width, device=rows.device)[None]
        closed = before.closed + (ended.totals > IMPOSSIBLE).sum(dim=1)
        pool = before.pool.add(ended, ended.scores(norm, covered), end, order)
        scores = beam.scores(norm, covered)
        going = self.goes_on(closed, width, scores.amax(dim=1), pool.scores[:, 0])[:, None].expand_as(scores)
        allowed = stays = going if last is None else going & ~last.view(batch, width).gather(1, beam.parents)
        if self.watch is not None:
            stays = stays & self.watch(*leaders(beam, scores, pool), (stays & (scores > IMPOSSIBLE)).any(dim=1))[:, None]
        cut_short, why = (
            beam.only(going & ~stays),
            order + width if self.watch is None else order + width * (1 + allowed.long()),
        )
        pool = pool.add(cut_short, cut_short.scores(norm, covered), end, why)
        return BeamProgress(state, beam.words.flatten(), beam.only(stays), pool, closed, broken, seen)

    def extend(self, beam: Beam, found: SearchStep, at: Place | None) -> tuple[Beam, Beam]:
        log_probs = found.log_probs.view(*beam.totals.shape, -1)
        banks = None if found.banks is None else found.banks.view_as(log_probs)
        if self.groups == 1:
            return extend(beam, log_probs, self.end, banks, None, at)
        return extend_groups(beam, log_probs, self.end, banks, self.groups, self.diversity, at)

    def read(self, found: BeamProgress) -> list[list[Found]]:
        if bool(found.broken.any()):
            raise UserError(NO_NUMBER)
        return joined(read(found.pool, self.end, self.trace), self.groups)


def beam_search(
    step: SearchStepFunction,
    state: Any,
    start: Int[Tensor, "batch"],
    *,
    width: int,
    end: int,
    length_penalty: float = 0.0,
    length_norm: str = "power",
    coverage: Coverage | None = None,
    watch: Watch | None = None,
    trace: Trace | None = None,
    stop: str = "best",
    groups: int = 1,
    diversity: float = 0.0,
) -> list[list[Found]]:
    normalise, goes_on = normaliser(length_norm, length_penalty), choose(STOPS, stop, "stop rule")
    search = BeamSearch(width // groups, end, normalise, goes_on, coverage, watch, trace, groups, diversity)
    return searched(search, step, search.begin(state, start))


def leaders(
    beam: Beam, scores: Float[Tensor, "batch width"], pool: Pool
) -> tuple[Int[Tensor, "batch length"], Float[Tensor, "batch"]]:
    """The best hypothesis of each sentence, open or closed: its tokens and its log-probability."""
    best, index = torch.cat([pool.scores, scores], dim=1).max(dim=1)
    tokens, rows = torch.cat([pool.tokens, beam.tokens], dim=1), torch.arange(len(best), device=best.device)
    return tokens[rows, index], torch.cat([pool.totals, beam.totals], dim=1)[rows, index]


def extend(
    beam: Beam,
    log_probs: Float[Tensor, "batch width vocabulary"],
    end: int,
    banks: Int[Tensor, "batch width vocabulary"] | None = None,
    avoided: Float[Tensor, "batch vocabulary"] | None = None,
    at: Place | None = None,
) -> tuple[Beam, Beam]:
    """One word more: the new open hypotheses, and those that ended among the best `width`. What is `avoided` is chosen as if it
    were so much less probable."""
    width, vocabulary = log_probs.shape[1:]
    candidates = (beam.totals[..., None] + log_probs).flatten(1)
    count = min(2 * width, candidates.shape[1])  # at most `width` of them end
    ranked = candidates if avoided is None else candidates - avoided.repeat(1, width)
    totals, chosen = top(ranked, count) if banks is None else allocate(ranked, banks.flatten(1), count)
    totals = totals if avoided is None else candidates.gather(1, chosen)
    return parted(beam, totals, chosen, vocabulary, end, at, ordered=banks is None and avoided is None)


def parted(
    beam: Beam, totals: Float[Tensor, "batch count"], chosen: Int[Tensor, "batch count"], vocabulary: int, end: int,
    at: Place | None, ordered: bool = True,
) -> tuple[Beam, Beam]:  # fmt: skip
    """The best continuations, hypothesis · vocabulary + word each, as those that go on and those that ended."""
    width, parents, words = beam.totals.shape[1], chosen // vocabulary, chosen % vocabulary
    ends = words == end
    history = beam.tokens.gather(1, parents[..., None].expand(-1, -1, beam.tokens.shape[-1]))
    tokens = with_word(history, words, at)
    closing = totals[:, :width].masked_fill(~ends[:, :width], IMPOSSIBLE)
    ended = Beam(tokens[:, :width], words[:, :width], closing, parents[:, :width])
    going = totals.masked_fill(ends, IMPOSSIBLE)
    best, index = going.topk(width) if ordered else first(going, width)
    kept = tokens.gather(1, index[..., None].expand(-1, -1, tokens.shape[-1]))
    return Beam(kept, words.gather(1, index), best, parents.gather(1, index)), ended


def extend_groups(
    beam: Beam,
    log_probs: Float[Tensor, "batch width vocabulary"],
    end: int,
    banks: Int[Tensor, "batch width vocabulary"] | None,
    groups: int,
    diversity: float,
    at: Place | None = None,
) -> tuple[Beam, Beam]:
    """Diverse beam search (Vijayakumar et al. 2016, eq. 4): group after group, by log p - λ for each hypothesis of earlier
    groups that has just been given the same word. The totals are without it."""
    used = torch.zeros_like(log_probs[::groups, 0])
    both = list[tuple[Beam, Beam]]()
    for group in range(groups):
        part, own = Beam(*(column[group::groups] for column in beam)), None if banks is None else banks[group::groups]
        there = None if at is None else Place(*(column[group::groups] for column in at))
        kept, ended = extend(part, log_probs[group::groups], end, own, diversity * used, there)
        used = used.scatter_add(1, kept.words, (kept.totals > IMPOSSIBLE).to(used.dtype))
        both.append((kept, ended))
    open_, closed = (
        Beam(*(torch.stack(columns, dim=1).flatten(0, 1) for columns in zip(*side, strict=True)))
        for side in zip(*both, strict=True)
    )
    return open_, closed


def joined(found: list[list[Found]], groups: int) -> list[list[Found]]:
    """What all groups of each sentence have found, best first; the same output only once."""
    if groups == 1:
        return found
    sentences = (itertools.chain(*found[begin : begin + groups]) for begin in range(0, len(found), groups))
    ranked = (sorted(each, key=lambda one: -one.score) for each in sentences)
    return [list({tuple(one.tokens): one for one in each[::-1]}.values())[::-1] for each in ranked]


def first(totals: Float[Tensor, "batch count"], width: int) -> tuple[Float[Tensor, "batch width"], Int[Tensor, "batch width"]]:
    """The first of them that are possible, and their places."""
    index = (totals == IMPOSSIBLE).long().argsort(dim=1, stable=True)[:, :width]
    return totals.gather(1, index), index


def allocate(
    candidates: Float[Tensor, "batch all"], banks: Int[Tensor, "batch all"], count: int
) -> tuple[Float[Tensor, "batch count"], Int[Tensor, "batch count"]]:
    """Dynamic beam allocation (Post & Vilar 2018, section 3): the best of each bank, then the second of each, and so on. The
    bank that fulfils most comes first, and what is not used of one is for the others."""
    levels = reversed(range(int(banks.max()) + 1))
    best = [candidates.masked_fill(banks != level, IMPOSSIBLE).topk(count) for level in levels]
    totals, chosen = (torch.stack(side, dim=2).flatten(1) for side in zip(*best, strict=True))
    totals, index = first(totals, count)
    return totals, chosen.gather(1, index)


def read(pool: Pool, end: int, trace: Trace | None) -> list[list[Found]]:
    found = list[list[Found]]()
    for sentence, columns in enumerate(zip(*(column.tolist() for column in pool), strict=True)):
        found.append([])
        for tokens, total, score, ended in zip(*columns, strict=True):
            if score > IMPOSSIBLE:
                why, place = divmod(ended, len(columns[0]))
                one = Found(cut(tokens, end), total, score, ENDS[why])
                place, length = place + len(columns[0]) * (why > 0), len(one.tokens) + (why == 0)
                found[-1].append(one if trace is None else trace.describe(one, length, sentence, place))
    return found
