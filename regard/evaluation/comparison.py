"""Models on the same rows: is one better, or was it luck? The paired bootstrap (Koehn 2004)."""

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
    return compare_each([theirs, ours], names)[1]


def compare_each(questions: Sequence[Question], names: Sequence[str] = ()) -> list[list[Compared]]:
    """Each of several models beside the first, which is beside itself; each is asked once."""
    first, *others = [applicable(one.trained, one.gold is not None) for one in questions]
    common = {name: metric for name, metric in first.items() if all(name in other for other in others)}
    usual = [name for name, metric in common.items() if metric.usual]
    metrics = {name: named_metric(name, common) for name in dict.fromkeys(names or usual)}
    evidence = [evidence_of(question, metrics) for question in questions]
    counted = [(metric.function, metric.needs) for metric in metrics.values() if isinstance(metric.function, Counted)]
    return [[compared(function, each[needs], evidence[0][needs]) for function, needs in counted] for each in evidence]


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
    if real == 0:
        return 1.0  # also where no resampled difference is another
    further = np.abs(differences - differences.mean()) > abs(real)
    return float((further.sum() + 1) / (len(differences) + 1))
