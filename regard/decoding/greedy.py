"""Take the best word at every step."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.hypothesis import Found, require_numbers
from regard.decoding.ranking import NORMALISATIONS, Coverage
from regard.decoding.rules import FORBIDDEN, SearchStepFunction
from regard.decoding.streaming import Watch
from regard.recipe import choose


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
) -> list[list[Found]]:
    """One hypothesis a sentence, as a beam of one would find it; none where the rules of `step` allow nothing. They must end
    every output some time."""
    words, lengths = start, torch.zeros_like(start)
    totals, open_ = torch.zeros_like(start, dtype=torch.float32), torch.ones_like(start, dtype=torch.bool)
    chosen, normalise = list[Tensor](), choose(NORMALISATIONS, length_norm, "normalisation of length")
    seen = None if coverage is None else coverage.start(1)
    while not chosen or open_.any():
        found = step(words, state)
        state = found.state
        if coverage is not None and seen is not None:
            seen = torch.where(open_[:, None], coverage.add(seen, found.weights), seen)
        best, words = found.log_probs.max(dim=-1)
        totals = totals + torch.where(open_, best, 0.0)
        chosen.append(torch.where(open_, words, end))
        lengths = lengths + open_
        open_ = found.still_open(open_ & (words != end))
        if watch is not None:
            open_ = open_ & watch(torch.stack(chosen, dim=1), totals, open_)
    covered = None if coverage is None or seen is None else coverage.score(seen)
    outputs = torch.stack(chosen, dim=1), lengths, require_numbers(totals)
    return [
        [one] if one.log_prob > FORBIDDEN else []
        for one in read(*outputs, end, lambda n: normalise(n, length_penalty), covered)
    ]


def read(
    rows: Int[Tensor, "rows longest"],
    lengths: Int[Tensor, "rows"],
    totals: Float[Tensor, "rows"],
    end: int,
    normalise: Callable[[int], float],
    covered: Float[Tensor, "rows"] | None = None,
) -> list[Found]:
    """What was written row by row, `end` after its end; lengths count the end mark where there is one."""
    more = torch.zeros_like(totals) if covered is None else covered
    each = zip(rows.tolist(), lengths.tolist(), totals.tolist(), more.tolist(), strict=True)
    return [
        Found(cut(row, end), total, total / normalise(length) + extra, cut=row[length - 1] != end)
        for row, length, total, extra in each
    ]


def cut(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens
