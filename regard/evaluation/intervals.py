"""How far to trust a score: what it would be on other test sets of this kind, by the bootstrap (Koehn 2004)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from regard.evaluation.metrics import Metric
from regard.evaluation.score import Counted, Counts, Score, percentiles

RESAMPLES = 1000
SEED = 12345


def with_interval(metric: Metric, found: Any, truth: Any, seed: int = SEED) -> Score:
    """The score and the interval, counted once; a metric that is no function of sums over rows has no interval."""
    function = metric.function
    if not isinstance(function, Counted):
        return metric(found, truth)
    counts = function.counts(found, truth)
    score = function.score(counts, truth)
    if not len(counts):
        return score
    sums = resampled_sums(counts, seed, RESAMPLES)
    between = percentiles([function.value(each) for each in sums.tolist()])
    return score._replace(interval=between, parts=function.parts(found, truth, counts, sums))


def interval(
    value: Callable[[list[float]], float], counts: Counts, seed: int = SEED, resamples: int = RESAMPLES
) -> tuple[float, float] | None:
    """Of as many rows as there are, drawn with replacement, again and again; None where there is no row."""
    if not len(counts):
        return None
    return percentiles([value(sums) for sums in resampled_sums(counts, seed, resamples).tolist()])


def resampled_sums(counts: Counts, seed: int, resamples: int) -> Counts:
    """[resamples, numbers]: the sums over rows that were drawn with replacement, each as often as it was drawn."""
    chance, rows = np.random.default_rng(seed), len(counts)
    times = (np.bincount(chance.integers(rows, size=rows), minlength=rows).astype(np.float64) for _ in range(resamples))
    return np.stack([each @ counts for each in times])
