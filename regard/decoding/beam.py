"""Beam search over any `step`; it knows nothing of models or rules, only of a tree of states."""

import itertools
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding.greedy import cut
from regard.decoding.hypothesis import Found, require_numbers
from regard.decoding.ranking import NORMALISATIONS, Coverage
from regard.decoding.rules import SearchStepFunction
from regard.decoding.streaming import Watch
from regard.nn.state import repeat_rows, select_rows
from regard.recipe import choose

IMPOSSIBLE = float("-inf")


class Beam(NamedTuple):
    """The open hypotheses of every sentence, best first; those of finished sentences are impossible."""

    tokens: Int[Tensor, "batch width length"]
    totals: Float[Tensor, "batch width"]
    parents: Int[Tensor, "batch width"]  # whose children they are, among those of the step before

    def scores(self, norm: float, covered: Float[Tensor, "batch width"] | None) -> Float[Tensor, "batch width"]:
        """What they are ranked by if they are closed now; `covered` is told of their parents."""
        by_length = self.totals / norm
        return by_length if covered is None else by_length + covered.gather(1, self.parents)

    def only(self, these: Bool[Tensor, "batch width"]) -> "Beam":
        return self._replace(totals=self.totals.masked_fill(~these, IMPOSSIBLE))


class Pool(NamedTuple):
    """The best closed hypotheses of every sentence, best first."""

    tokens: Int[Tensor, "batch width length"]
    totals: Float[Tensor, "batch width"]
    scores: Float[Tensor, "batch width"]
    cut: Bool[Tensor, "batch width"]  # which of them have no end mark

    def add(self, beam: Beam, scores: Float[Tensor, "batch width"], end: int, cut: bool) -> "Pool":
        """The best of what is here and what has just closed."""
        room = beam.tokens.shape[-1] - self.tokens.shape[-1]
        tokens = torch.cat([torch.nn.functional.pad(self.tokens, (0, room), value=end), beam.tokens], dim=1)
        best, index = torch.cat([self.scores, scores], dim=1).topk(self.scores.shape[1])
        totals = torch.cat([self.totals, beam.totals], dim=1).gather(1, index)
        cuts = torch.cat([self.cut, torch.full_like(scores, cut, dtype=torch.bool)], dim=1).gather(1, index)
        return Pool(tokens.gather(1, index[..., None].expand(-1, -1, tokens.shape[-1])), totals, best, cuts)


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
) -> list[list[Found]]:
    """The best outputs of each sentence by log p / norm(length) + what `coverage` makes of where they looked.

    A sentence is finished when `width` of its hypotheses have closed and none that is open leads them all, or when a rule of
    `step` cuts those still open, which closes them.
    """
    batch = len(start)
    state = repeat_rows(state, width)
    nothing = torch.full((batch, width), IMPOSSIBLE, device=start.device)
    beam = Beam(start.new_zeros(batch, width, 0), nothing, start.new_zeros(batch, width))
    beam.totals[:, 0] = 0.0  # all hypotheses start equal: keep one, or the first step returns copies of it
    pool = Pool(beam.tokens, *(torch.full_like(beam.totals, IMPOSSIBLE),) * 2, torch.zeros_like(beam.totals, dtype=torch.bool))
    words, closed = start.repeat_interleave(width), torch.zeros_like(start)
    normalise = choose(NORMALISATIONS, length_norm, "normalisation of length")
    seen, covered = None if coverage is None else coverage.start(width), None

    for length in itertools.count(1):
        log_probs, weights, state, last = step(words, state)
        if coverage is not None and seen is not None:
            seen = coverage.add(seen, weights)
            covered = coverage.score(seen).view(batch, width)
        beam, ended = extend(beam, require_numbers(log_probs).view(batch, width, -1), end)
        norm = normalise(length, length_penalty)
        closed = closed + (ended.totals > IMPOSSIBLE).sum(dim=1)
        pool = pool.add(ended, ended.scores(norm, covered), end, cut=False)
        scores = beam.scores(norm, covered)
        going = ((closed < width) | (scores.amax(dim=1) > pool.scores[:, 0]))[:, None].expand_as(scores)
        stays = going if last is None else going & ~last.view(batch, width).gather(1, beam.parents)
        if watch is not None:
            stays = stays & watch(*leaders(beam, scores, pool), (stays & (scores > IMPOSSIBLE)).any(dim=1))[:, None]
        cut_short = beam.only(going & ~stays)
        pool = pool.add(cut_short, cut_short.scores(norm, covered), end, cut=True)
        beam = beam.only(stays)
        if not (beam.totals > IMPOSSIBLE).any():
            break
        rows = (torch.arange(batch, device=start.device)[:, None] * width + beam.parents).flatten()
        (state, seen), words = select_rows((state, seen), rows), beam.tokens[..., -1].flatten()
    return read(pool, end)


def leaders(
    beam: Beam, scores: Float[Tensor, "batch width"], pool: Pool
) -> tuple[Int[Tensor, "batch length"], Float[Tensor, "batch"]]:
    """The best hypothesis of each sentence, open or closed: its tokens and its log-probability."""
    best, index = torch.cat([pool.scores, scores], dim=1).max(dim=1)
    tokens, rows = torch.cat([pool.tokens, beam.tokens], dim=1), torch.arange(len(best), device=best.device)
    return tokens[rows, index], torch.cat([pool.totals, beam.totals], dim=1)[rows, index]


def extend(beam: Beam, log_probs: Float[Tensor, "batch width vocabulary"], end: int) -> tuple[Beam, Beam]:
    """One word more: the new open hypotheses, and those that ended among the best `width`."""
    width, vocabulary = log_probs.shape[1:]
    candidates = (beam.totals[..., None] + log_probs).flatten(1)
    totals, chosen = candidates.topk(min(2 * width, candidates.shape[1]))  # at most `width` of them end
    parents, words = chosen // vocabulary, chosen % vocabulary
    ends = words == end
    history = beam.tokens.gather(1, parents[..., None].expand(-1, -1, beam.tokens.shape[-1]))
    tokens = torch.cat([history, words[..., None]], dim=-1)
    ended = Beam(tokens[:, :width], totals[:, :width].masked_fill(~ends[:, :width], IMPOSSIBLE), parents[:, :width])
    best, index = totals.masked_fill(ends, IMPOSSIBLE).topk(width)
    kept = tokens.gather(1, index[..., None].expand(-1, -1, tokens.shape[-1]))
    return Beam(kept, best, parents.gather(1, index)), ended


def read(pool: Pool, end: int) -> list[list[Found]]:
    return [
        [Found(cut(tokens, end), *rest) for tokens, *rest in zip(*sentence, strict=True) if rest[1] > IMPOSSIBLE]
        for sentence in zip(*(column.tolist() for column in pool), strict=True)
    ]
