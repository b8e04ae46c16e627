"""The paired bootstrap beside sacreBLEU's, and beside test sets that are resampled and scored anew."""

import numpy as np
import pytest
from sacrebleu.significance import _compute_p_value

from regard.errors import UserError
from regard.evaluation import comparison
from regard.evaluation.comparison import compared, p_value
from regard.evaluation.metrics import METRICS

TIMES, ROWS = 60, 40


def labels(share, seed):
    chance = np.random.default_rng(seed)
    return [["N" if chance.random() < share else "V"] for _ in range(ROWS)]


TRUTH, GOOD, BAD = [["N"]] * ROWS, labels(0.9, 1), labels(0.4, 2)
ACCURACY = METRICS["accuracy"].function


def test_differences_are_those_of_the_same_rows(monkeypatch):
    monkeypatch.setattr(comparison, "RESAMPLES", TIMES)
    found = compared(ACCURACY, (GOOD, TRUTH), (BAD, TRUTH))
    generator, differences = np.random.default_rng(comparison.SEED), []
    for _ in range(TIMES):
        drawn = generator.integers(ROWS, size=ROWS)
        one, other = (ACCURACY([side[row] for row in drawn], [TRUTH[row] for row in drawn]).value for side in (GOOD, BAD))
        differences.append(one - other)
    assert (found.ours, found.theirs) == (ACCURACY(GOOD, TRUTH).value, ACCURACY(BAD, TRUTH).value)
    assert found.interval == pytest.approx(tuple(np.percentile(differences, [2.5, 97.5])))
    assert found.p_value == pytest.approx(p_value(np.array(differences), found.ours - found.theirs))


def test_the_p_value_is_sacrebleus():
    differences, real = np.random.default_rng(1).normal(0.3, 0.2, 500), 0.31
    assert p_value(differences, real) == _compute_p_value(np.abs(differences - differences.mean()), real)
    assert p_value(differences, -real) == p_value(differences, real)


def test_a_better_model_is_told_from_an_equal_one():
    assert compared(ACCURACY, (GOOD, TRUTH), (BAD, TRUTH)).p_value < 0.01
    assert compared(ACCURACY, (GOOD, TRUTH), (labels(0.9, 3), TRUTH)).p_value > 0.2
    same = compared(ACCURACY, (GOOD, TRUTH), (GOOD, TRUTH))
    assert same.interval == (0, 0)


def test_only_the_same_rows_are_compared():
    with pytest.raises(UserError, match="can be judged on 40 and 39 rows"):
        compared(ACCURACY, (GOOD, TRUTH), (GOOD[1:], TRUTH[1:]))
