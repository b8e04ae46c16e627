"""Intervals against a bootstrap that scores every resampled test set anew."""

import random

import numpy as np
import pytest
from oracles import needs_installed

from regard.data.boxes import Box
from regard.data.links import Links
from regard.decoding.forcing import Likelihood
from regard.evaluation import intervals
from regard.evaluation.intervals import interval, with_interval
from regard.evaluation.metrics import METRICS, Metric, Score

ROWS, TIMES = 12, 40
chance = random.Random(3)


def sentence():
    return " ".join(chance.choices("abcde", k=chance.randint(4, 9)))


def links():
    return frozenset((chance.randrange(4), chance.randrange(4)) for _ in range(3))


REFERENCES = [[sentence() for _ in range(chance.randint(1, 2))] for _ in range(ROWS)]
OUTPUTS = [row[0] if number % 3 == 0 else row[0][:-2] + " x y" for number, row in enumerate(REFERENCES)]
ANSWERS = {
    "outputs": (OUTPUTS, REFERENCES),
    "likelihood": ([Likelihood(-chance.random() * 9, chance.randint(1, 5)) for _ in range(ROWS)], ["a"] * ROWS),
    "text likelihood": ([Likelihood(-chance.random() * 9, chance.randint(1, 5)) for _ in range(ROWS)], ["a"] * ROWS),
    "labels": (
        [chance.choices(["B-N", "O"], k=3) for _ in range(ROWS)],
        [chance.choices(["B-N", "O"], k=chance.randint(2, 4)) for _ in range(ROWS)],
    ),
    "boxes": (
        [[(9 * chance.random(), 9 * chance.random()) for _ in range(3)] for _ in range(ROWS)],
        [{word: Box(1, 1, 8, 7) for word in range(chance.randint(1, 3))} for _ in range(ROWS)],
    ),
    "links": ([links() for _ in range(ROWS)], [Links(one, one | links()) for one in (links() for _ in range(ROWS))]),
}


@pytest.mark.parametrize("name", METRICS)
def test_an_interval_is_that_of_resampled_test_sets(name, monkeypatch):
    needs_installed(name)
    monkeypatch.setattr(intervals, "RESAMPLES", TIMES)
    metric = METRICS[name]
    found, truth = ANSWERS[metric.needs]
    generator = np.random.default_rng(5)
    values = []
    for _ in range(TIMES):
        drawn = generator.integers(ROWS, size=ROWS)
        values.append(metric([found[row] for row in drawn], [truth[row] for row in drawn]).value)
    score = with_interval(metric, found, truth, seed=5)
    assert score.interval == pytest.approx(tuple(np.percentile(values, [2.5, 97.5])))
    assert score._replace(interval=None, parts=()) == metric(found, truth)
    assert score.interval[0] < score.value < score.interval[1]
    assert score == with_interval(metric, found, truth, seed=5)
    assert score.interval != with_interval(metric, found, truth, seed=6).interval


def test_the_interval_of_a_share_is_that_of_its_standard_error():
    """300 of 400 are right: 75 % with a standard error of sqrt(0.75 * 0.25 / 400)."""
    outputs, references = ["a"] * 400, ["a"] * 300 + ["b"] * 100
    low, high = with_interval(METRICS["exact"], outputs, references).interval
    error = 100 * (0.75 * 0.25 / 400) ** 0.5
    assert low == pytest.approx(75 - 1.96 * error, abs=0.5)
    assert high == pytest.approx(75 + 1.96 * error, abs=0.5)


def test_what_has_no_rows_or_no_sums_has_no_interval():
    assert with_interval(METRICS["loss"], [], []).interval is None
    mine = Metric(lambda found, truth: Score("mine", float(len(found))))
    assert with_interval(mine, ["a", "b"], ["a", "b"]) == Score("mine", 2.0)
    assert interval(sum, np.ones((1, 1))) == (1.0, 1.0)
