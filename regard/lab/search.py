"""The search for hyperparameters: one list of choices for all cells, the best by validation."""

import math
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

RATES, SCALES, CLIPS = (1e-3, 3e-2), (0.5, 2.0), (0.5, 5.0)


class Hyperparameters(NamedTuple):
    learning_rate: float
    scale: float  # of the initial matrices
    clip: float  # of the gradient's norm


def choices(trials: int, seed: int = 1) -> list[Hyperparameters]:
    """Log-uniform. The learning rate, which matters most, is drawn from equal slices: a few trials cover its range."""
    random = Random(f"lab search {seed}").random
    return [
        Hyperparameters(between(RATES, (number + random()) / trials), between(SCALES, random()), between(CLIPS, random()))
        for number in range(trials)
    ]


def between(limits: tuple[float, float], share: float) -> float:
    """low^(1 - share) high^share, to three figures."""
    low, high = limits
    return float(f"{math.exp((1 - share) * math.log(low) + share * math.log(high)):.3g}")


def best(rows: Sequence[dict[str, Any]]) -> int:
    """The place of the row with the lowest loss in validation; one that diverged is worse than any other."""
    return min(range(len(rows)), key=lambda place: math.inf if rows[place]["valid"] is None else rows[place]["valid"])
