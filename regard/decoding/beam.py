"""Beam search over any `step`; it knows nothing of models, only of a tree of states."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.greedy import cut
from regard.decoding.hypothesis import Found, require_numbers
from regard.decoding.ranking import NORMALISATIONS, Coverage
from regard.models.interface import StepFunction
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


class Pool(NamedTuple):
    """The best closed hypotheses of every sentence, best first."""

    tokens: Int[Tensor, "batch width limit"]
    totals: Float[Tensor, "batch width"]
    scores: Float[Tensor, "batch width"]

    def add(self, tokens: Tensor, totals: Tensor, scores: Tensor, end: int) -> "Pool":
        """The best of what is here and what has just closed."""
        room = self.tokens.shape[-1] - tokens.shape[-1]
        tokens = torch.cat([self.tokens, torch.nn.functional.pad(tokens, (0, room), value=end)], dim=1)
        best, index = torch.cat([self.scores, scores], dim=1).topk(self.scores.shape[1])
        totals = torch.cat([self.totals, totals], dim=1).gather(1, index)
        return Pool(tokens.gather(1, index[..., None].expand(-1, -1, tokens.shape[-1])), totals, best)


def beam_search(
    step: StepFunction,
    state: Any,
    *,
    limits: Int[Tensor, "batch"],
    width: int,
    start: int,
    end: int,
    length_penalty: float = 0.0,
    length_norm: str = "power",
    coverage: Coverage | None = None,
) -> list[list[Found]]:
    """The best outputs of each sentence by log p / norm(length) + what `coverage` makes of where they looked.

    A sentence is finished when `width` of its hypotheses have closed and none that is open leads them all, or at its limit,
    which closes those still open.
    """
    batch, longest = len(limits), int(limits.max())
    state = repeat_rows(state, width)
    nothing = torch.full((batch, width), IMPOSSIBLE, device=limits.device)
    beam = Beam(limits.new_zeros(batch, width, 0), nothing, limits.new_zeros(batch, width))
    beam.totals[:, 0] = 0.0  # all hypotheses start equal: keep one, or the first step returns copies of it
    pool = Pool(limits.new_full((batch, width, longest), end), *(torch.full_like(beam.totals, IMPOSSIBLE),) * 2)
    words, closed = limits.new_full((batch * width,), start), torch.zeros_like(limits)
    normalise = choose(NORMALISATIONS, length_norm, "normalisation of length")
    seen, covered = None if coverage is None else coverage.start(width), None

    for length in range(1, longest + 1):
        logits, weights, state = step(words, state)
        if coverage is not None and seen is not None:
            seen = coverage.add(seen, weights)
            covered = coverage.score(seen).view(batch, width)
        log_probs = require_numbers(logits.float().log_softmax(dim=-1)).view(batch, width, -1)
        beam, ended = extend(beam, log_probs, end)
        norm = normalise(length, length_penalty)
        closed = closed + (ended.totals > IMPOSSIBLE).sum(dim=1)
        pool = pool.add(ended.tokens, ended.totals, ended.scores(norm, covered), end)
        going = (closed < width) | (beam.scores(norm, covered).amax(dim=1) > pool.scores[:, 0])
        at_limit = ((limits == length) & going)[:, None]
        last = beam._replace(totals=beam.totals.masked_fill(~at_limit, IMPOSSIBLE))
        pool = pool.add(last.tokens, last.totals, last.scores(norm, covered), end)
        finished = ~going | (limits <= length)
        beam = beam._replace(totals=beam.totals.masked_fill(finished[:, None], IMPOSSIBLE))
        if finished.all():
            break
        rows = (torch.arange(batch, device=limits.device)[:, None] * width + beam.parents).flatten()
        (state, seen), words = select_rows((state, seen), rows), beam.tokens[..., -1].flatten()
    return read(pool, end)


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
        [Found(cut(tokens, end), total, score) for tokens, total, score in zip(*sentence, strict=True) if score > IMPOSSIBLE]
        for sentence in zip(pool.tokens.tolist(), pool.totals.tolist(), pool.scores.tolist(), strict=True)
    ]
