"""Windows: everything is asked once, in order, and lanes go on where they were cut."""

from itertools import islice

import pytest
import torch

from regard.lab.windows import IGNORE, Rows, Stream


def joined(windows, part):
    """The lanes of a pass, each whole again."""
    return torch.cat([getattr(window, part) for window in windows], dim=1)


@pytest.mark.parametrize(("length", "batch", "window"), [(101, 4, 7), (100, 4, 7), (12, 5, 3), (3, 8, 4), (50, 1, 100)])
def test_a_pass_asks_for_every_token_but_the_first(length, batch, window):
    tokens = torch.arange(100, 100 + length)
    windows = list(Stream(tokens).once(batch, window))
    assert [one.fresh for one in windows] == [True] + [False] * (len(windows) - 1)
    assert all(one.inputs.shape[1] <= window for one in windows)
    inputs, targets = joined(windows, "inputs"), joined(windows, "targets")
    asked = targets != IGNORE
    assert asked.any(dim=0).all()
    assert targets[asked].tolist() == tokens[1:].tolist()
    assert inputs[asked].tolist() == tokens[:-1].tolist()


def test_training_reads_the_same_stream_from_other_places():
    tokens = torch.arange(1, 41)
    first, again, other = (list(islice(Stream(tokens).training(2, 5, seed), 12)) for seed in (1, 1, 2))
    assert all(torch.equal(one.inputs, two.inputs) for one, two in zip(first, again, strict=True))
    assert any(not torch.equal(one.inputs, two.inputs) for one, two in zip(first, other, strict=True))
    assert [window.fresh for window in first] == ([True] + [False] * 3) * 3
    starts = {int(window.inputs[0, 0]) for window in first if window.fresh}
    assert len(starts) > 1
    for window in first:
        follows = window.targets[window.targets != IGNORE] - window.inputs[window.targets != IGNORE]
        assert set(follows.tolist()) <= {1, -39}  # the next one, or from the last to the first


def test_rows_come_once_an_epoch_in_another_order():
    rows = Rows(torch.arange(10)[:, None], torch.arange(10)[:, None] + 100)
    windows = list(islice(rows.training(4, 0, seed=1), 6))
    epochs = [torch.cat([window.inputs for window in part]).flatten().tolist() for part in (windows[:3], windows[3:])]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert all(torch.equal(window.inputs + 100, window.targets) and window.fresh for window in windows)
    assert torch.cat([window.inputs for window in rows.once(4, 0)]).flatten().tolist() == list(range(10))
