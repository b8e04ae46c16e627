"""Two models on the same rows: is one better, or was it luck? The paired bootstrap (Koehn 2004)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from regard.errors import UserError
from regard.evaluation.evaluate import Question, applicable, evidence_of, named_metric
from regard.evaluation.intervals import RESAMPLES, SEED, resampled_sums
from regard.evaluation.score import Counted, percentiles


class Compared(NamedTuple):
    """A metric of two models, and how far to trust the difference."""

    name: str
    ours: float
    theirs: float
    interval: tuple[float, float]  # 95 % of resampled test sets have a difference, ours - theirs, between these
    p_value: float  # the chance of so large a difference between models that are equally good


def compare(ours: Question, theirs: Question, names: Sequence[str] = ()) -> list[Compared]:
    """By the usual metrics that apply to both models, or those named; only metrics that are functions of sums over rows."""
    known, other = (applicable(one.trained, one.gold is not None) for one in (ours, theirs))
    both = {name: metric for name, metric in known.items() if name in other}
    usual = [name for name, metric in both.items() if metric.usual]
    metrics = {name: named_metric(name, both) for name in dict.fromkeys(names or usual)}
    evidence = [evidence_of(question, metrics) for question in (ours, theirs)]
    found = list[Compared]()
    for metric in metrics.values():
        if isinstance(metric.function, Counted):
            found.append(compared(metric.function, *(each[metric.needs] for each in evidence)))
    return found


def compared(function: Counted, ours: tuple[object, object], theirs: tuple[object, object]) -> Compared:
    counts = [function.counts(*each) for each in (ours, theirs)]
    if len(counts[0]) != len(counts[1]) or not len(counts[0]):
        numbers = " and ".join(f"{len(each):,}" for each in counts)
        raise UserError(f"{function.name}: the models can be judged on {numbers} rows, and only the same rows are compared")
    one, other = (function.value(each.sum(axis=0).tolist()) for each in counts)
    drawn = ([function.value(sums) for sums in resampled_sums(each, SEED, RESAMPLES).tolist()] for each in counts)
    differences = np.array(next(drawn)) - np.array(next(drawn))
    return Compared(function.name, one, other, percentiles(differences.tolist()), p_value(differences, one - other))


def p_value(differences: npt.NDArray[np.float64], real: float) -> float:
    """The share of resampled differences that lie further from their mean than the real one from 0, as sacreBLEU has it."""
    further = np.abs(differences - differences.mean()) > abs(real)
    return float((further.sum() + 1) / (len(differences) + 1))
