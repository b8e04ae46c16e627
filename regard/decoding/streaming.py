"""Outputs while they are being written: what a callback is told after every step, and how it ends an output."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class PartialOutput(NamedTuple):
    """What is known of an output after a step: its words so far, or the best hypothesis of its beam."""

    row: int  # which of the texts
    sample: int  # which of its samples; 0 in a search
    text: str
    tokens: list[int]
    log_prob: float  # of its tokens, and of its end mark if it has one
    finished: bool  # nothing more is told of it


OnStep = Callable[[PartialOutput], bool | None]  # False ends this output as it stands
Tell = Callable[[int, list[int], float, bool], bool]  # sample, tokens up to END, log p, whether it goes on -> whether it shall
# What a search calls after each step: tokens with `end` after their end, log p, which go on -> which shall
Watch = Callable[[Int[Tensor, "rows length"], Float[Tensor, "rows"], Bool[Tensor, "rows"]], Bool[Tensor, "rows"]]


def watcher(tells: Sequence[Tell], count: int) -> Watch:
    """Each sentence has a `Tell` and `count` rows. An output is told until it is finished, and once that it is."""
    done: set[int] = set()

    def watch(tokens: Tensor, totals: Tensor, going: Tensor) -> Tensor:
        wanted = []
        for place, (row, total, goes_on) in enumerate(zip(tokens.tolist(), totals.tolist(), going.tolist(), strict=True)):
            if place not in done:
                goes_on = tells[place // count](place % count, row, total, goes_on)
            if not goes_on:
                done.add(place)
            wanted.append(goes_on)
        return torch.tensor(wanted, device=going.device)

    return watch
