"""How far to trust a score: what it would be on other test sets of this kind, by the bootstrap (Koehn 2004)."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from regard.evaluation.metrics import Metric
from regard.evaluation.score import Counted, Counts, Score

RESAMPLES = 1000
SEED = 12345
ENDS = (2.5, 97.5)  # percentiles of the resampled scores: 95 % lie between them


def with_interval(metric: Metric, found: Any, truth: Any, seed: int = SEED) -> Score:
    """The score and the interval, counted once; a metric that is no function of sums over rows has no interval."""
    if not isinstance(metric.function, Counted):
        return metric(found, truth)
    counts = metric.function.counts(found, truth)
    return metric.function.score(counts, truth)._replace(interval=interval(metric.function.value, counts, seed, RESAMPLES))


def interval(
    value: Callable[[list[float]], float], counts: Counts, seed: int = SEED, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Of as many rows as there are, drawn with replacement, again and again; None where there is no row."""
    if not len(counts):
        return None
    values = [value((times @ counts).tolist()) for times in resampled(len(counts), seed, resamples)]
    low, high = np.percentile(values, ENDS).tolist()
    return low, high


def resampled(rows: int, seed: int, resamples: int) -> Iterator[Counts]:
    """How often each row was drawn."""
    chance = np.random.default_rng(seed)
    for _ in range(resamples):
        yield np.bincount(chance.integers(rows, size=rows), minlength=rows).astype(np.float64)
