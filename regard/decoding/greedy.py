"""Take the best word at every step."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decoding.hypothesis import Found, require_numbers
from regard.models.interface import StepFunction


def greedy_search(
    step: StepFunction, state: Any, *, limits: Int[Tensor, "batch"], start: int, end: int, length_penalty: float = 0.0
) -> list[list[Found]]:
    """One hypothesis a sentence, as a beam of one would find it."""
    words = torch.full_like(limits, start)
    totals, open_ = torch.zeros_like(limits, dtype=torch.float32), torch.ones_like(limits, dtype=torch.bool)
    chosen = []
    for length in range(1, int(limits.max()) + 1):
        logits, _, state = step(words, state)
        best, words = logits.float().log_softmax(dim=-1).max(dim=-1)
        totals = totals + torch.where(open_, best, 0.0)
        chosen.append(torch.where(open_, words, end))
        open_ = open_ & (words != end) & (limits > length)
        if not open_.any():
            break
    rows = torch.stack(chosen, dim=1).tolist()
    found = []
    for row, limit, total in zip(rows, limits.tolist(), require_numbers(totals).tolist(), strict=True):
        tokens = cut(row[:limit], end)
        length = min(len(tokens) + 1, limit)  # the end mark counts where there is one
        found.append([Found(tokens, total, total / length**length_penalty)])
    return found


def cut(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end)] if end in tokens else tokens
