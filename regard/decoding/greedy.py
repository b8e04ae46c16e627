"""Take the best word at every step."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decoding.hypothesis import Found, require_numbers
from regard.decoding.ranking import NORMALISATIONS, Coverage
from regard.models.interface import StepFunction
from regard.recipe import choose


def greedy_search(
    step: StepFunction,
    state: Any,
    *,
    limits: Int[Tensor, "batch"],
    start: int,
    end: int,
    length_penalty: float = 0.0,
    length_norm: str = "power",
    coverage: Coverage | None = None,
) -> list[list[Found]]:
    """One hypothesis a sentence, as a beam of one would find it."""
    words = torch.full_like(limits, start)
    totals, open_ = torch.zeros_like(limits, dtype=torch.float32), torch.ones_like(limits, dtype=torch.bool)
    chosen, normalise = [], choose(NORMALISATIONS, length_norm, "normalisation of length")
    seen = None if coverage is None else coverage.start(1)
    for length in range(1, int(limits.max()) + 1):
        logits, weights, state = step(words, state)
        if coverage is not None and seen is not None:
            seen = torch.where(open_[:, None], coverage.add(seen, weights), seen)
        best, words = logits.float().log_softmax(dim=-1).max(dim=-1)
        totals = totals + torch.where(open_, best, 0.0)
        chosen.append(torch.where(open_, words, end))
        open_ = open_ & (words != end) & (limits > length)
        if not open_.any():
            break
    covered = torch.zeros_like(totals) if coverage is None or seen is None else coverage.score(seen)
    found = []
    for row, limit, total, more in zip(
        torch.stack(chosen, dim=1).tolist(), limits.tolist(), require_numbers(totals).tolist(), covered.tolist(), strict=True
    ):
        tokens = cut(row[:limit], end)
        length = min(len(tokens) + 1, limit)  # the end mark counts where there is one
        found.append([Found(tokens, total, total / normalise(length, length_penalty) + more)])
    return found


def cut(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens
