"""Take the best word at every step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.decoding.hypothesis import END_MARK, LIMIT, ON_STEP, Found, require_numbers
from regard.decoding.ranking import NORMALISATIONS, Coverage
from regard.decoding.rules import FORBIDDEN, SearchStepFunction
from regard.decoding.streaming import Watch
from regard.decoding.trace import Trace
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
    trace: Trace | None = None,
) -> list[list[Found]]:
    """One hypothesis a sentence, as a beam of one would find it; none where the rules of `step` allow nothing. They must end
    every output some time."""
    words, lengths = start, torch.zeros_like(start)
    totals, open_ = torch.zeros_like(start, dtype=torch.float32), torch.ones_like(start, dtype=torch.bool)
    chosen, normalise = list[Tensor](), choose(NORMALISATIONS, length_norm, "normalisation of length")
    seen, stopped = None if coverage is None else coverage.start(1), torch.zeros_like(open_)
    while not chosen or open_.any():
        found = step(words, state)
        state = found.state
        if coverage is not None and seen is not None:
            seen = torch.where(open_[:, None], coverage.add(seen, found.weights), seen)
        best, words = found.log_probs.max(dim=-1)
        if trace is not None:
            trace.add(found.log_probs[:, None], found.weights, torch.zeros_like(words)[:, None], words[:, None])
        totals = totals + torch.where(open_, best, 0.0)
        chosen.append(torch.where(open_, words, end))
        lengths = lengths + open_
        open_ = found.still_open(open_ & (words != end))
        if watch is not None:
            open_, stopped = watched(watch, torch.stack(chosen, dim=1), totals, open_, stopped)
    covered = None if coverage is None or seen is None else coverage.score(seen)
    outputs = Written(torch.stack(chosen, dim=1), lengths, require_numbers(totals), stopped)
    return [
        [one] if one.log_prob > FORBIDDEN else []
        for one in read(outputs, end, lambda n: normalise(n, length_penalty), covered, trace)
    ]


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
