"""Windows: everything is asked once, in order, and lanes go on where they were cut."""

from itertools import islice

import numpy as np
import pytest

from regard.lab.windows import IGNORE, Rows, Stream


def fresh(window):
    return window.get("lanes") is None


def joined(windows, part):
    """The lanes of a pass, each whole again."""
    return np.concatenate([window[part].values for window in windows], axis=1)


@pytest.mark.parametrize(("length", "batch", "window"), [(101, 4, 7), (100, 4, 7), (12, 5, 3), (3, 8, 4), (50, 1, 100)])
def test_a_pass_asks_for_every_token_but_the_first(length, batch, window):
    tokens = np.arange(100, 100 + length)
    windows = list(Stream(tokens).once(batch, window))
    assert [fresh(one) for one in windows] == [True] + [False] * (len(windows) - 1)
    assert all(one["source"].values.shape[1] <= window for one in windows)
    inputs, targets = joined(windows, "source"), joined(windows, "target")
    asked = targets != IGNORE
    assert asked.any(axis=0).all()
    assert targets[asked].tolist() == tokens[1:].tolist()
    assert inputs[asked].tolist() == tokens[:-1].tolist()


def test_training_reads_the_same_stream_from_other_places():
    tokens = np.arange(1, 41)
    first, again, other = (list(islice(Stream(tokens).training(2, 5, seed), 12)) for seed in (1, 1, 2))
    assert all(np.array_equal(one["source"].values, two["source"].values) for one, two in zip(first, again, strict=True))
    assert any(not np.array_equal(one["source"].values, two["source"].values) for one, two in zip(first, other, strict=True))
    assert [fresh(window) for window in first] == ([True] + [False] * 3) * 3
    starts = {int(window["source"].values[0, 0]) for window in first if fresh(window)}
    assert len(starts) > 1
    for window in first:
        inputs, targets = window["source"].values, window["target"].values
        follows = targets[targets != IGNORE] - inputs[targets != IGNORE]
        assert set(follows.tolist()) <= {1, -39}  # the next one, or from the last to the first


def test_rows_come_once_an_epoch_in_another_order():
    rows = Rows(np.arange(10)[:, None], np.arange(10)[:, None] + 100)
    windows = list(islice(rows.training(4, 0, seed=1), 6))
    epochs = [
        np.concatenate([window["source"].values for window in part]).flatten().tolist() for part in (windows[:3], windows[3:])
    ]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert all(np.array_equal(window["source"].values + 100, window["target"].values) and fresh(window) for window in windows)
    assert np.concatenate([window["source"].values for window in rows.once(4, 0)]).flatten().tolist() == list(range(10))
