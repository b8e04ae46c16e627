"""The learning rate as a share of its peak, for each step. One function a schedule; SCHEDULES names them."""

import math
from collections.abc import Callable
from typing import NamedTuple

from regard.tables import TABLES


class Schedule(NamedTuple):
    """An entry of SCHEDULES."""

    # (step from 1, warm-up steps, all steps) -> share of the peak; steps lie between whole ones where time changes their number
    share: Callable[[float, int, int], float]
    halves: bool = False  # the peak, after two validations without a better score

    def __call__(self, step: int | float, warmup: int, updates: int) -> float:
        return self.share(step, warmup, updates)


def warm(step: int | float, warmup: int) -> float:
    return min(1.0, step / warmup) if warmup else 1.0


def constant(step: int | float, warmup: int, updates: int) -> float:
    return warm(step, warmup)


def inverse_sqrt(step: int | float, warmup: int, updates: int) -> float:
    """√(warmup / step) after the warm-up (Vaswani et al. 2017, eq. 3)."""
    return warm(step, warmup) * math.sqrt(max(warmup, 1) / max(step, warmup, 1))


def cosine(step: int | float, warmup: int, updates: int) -> float:
    """Half a cosine from 1 at the end of the warm-up to 0 after the last step (Loshchilov & Hutter 2017)."""
    done = max(0, step - warmup) / max(1, updates - warmup + 1)
    return warm(step, warmup) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


def linear(step: int | float, warmup: int, updates: int) -> float:
    """A line from 1 at the end of the warm-up to 0 after the last step."""
    peak = max(1, warmup)
    return warm(step, warmup) * (1.0 - min(1.0, max(0, step - peak) / max(1, updates + 1 - peak)))


SCHEDULES: dict[str, Schedule] = {
    "constant": Schedule(constant),
    "inverse_sqrt": Schedule(inverse_sqrt),
    "cosine": Schedule(cosine),
    "linear": Schedule(linear),
    "plateau": Schedule(constant, halves=True),
}
TABLES["schedule"] = lambda: SCHEDULES
