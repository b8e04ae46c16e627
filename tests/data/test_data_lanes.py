"""One long text in lanes: every token once an epoch, and windows that follow one another."""

import numpy as np
import pytest

from regard.data.lanes import Lanes, LongText
from regard.data.store import Sequences
from regard.data.tokenizers import END, PAD

ROWS = [[4, 5, 6], [], [7], [8, 9, 4, 5, 6, 7, 8], [5, 5], [9]]


@pytest.fixture
def column():
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in ROWS])])
    return Sequences(np.array([token for row in ROWS for token in row], np.uint16), offsets)


def joined(rows):
    return [token for row in rows for token in (*ROWS[row], END)]


@pytest.mark.parametrize("rows", [[0, 1, 2, 3, 4, 5], [0, 2, 5], [1], [3, 4]])
def test_a_long_text_is_its_rows_with_an_end_mark_after_each(column, rows):
    text = LongText(column, np.array(rows))
    assert text[np.arange(len(text))].tolist() == joined(rows)
    places = np.random.default_rng(1).integers(len(text), size=(3, 4))
    assert text[places].tolist() == np.array(joined(rows))[places].tolist()


@pytest.mark.parametrize(("lanes", "window"), [(1, 3), (2, 4), (3, 5), (4, 1), (5, 100), (100, 2)])
def test_an_epoch_has_every_token_once_in_lanes_that_go_on(column, lanes, window):
    text = LongText(column, np.arange(len(ROWS)))
    plan, whole = Lanes(text, lanes, window, seed=7), joined(range(len(ROWS)))
    for epoch in range(3):
        streams = {}
        for step in range(epoch * len(plan), (epoch + 1) * len(plan)):
            rows = plan.rows(step)
            batch = plan.batch(rows, step)
            assert batch["target"].values.shape == (plan.lanes, plan.window)
            assert plan.tokens(rows) == (batch["target"].values != PAD).sum()
            for (lane, before, going), target in zip(batch["lanes"].values, batch["target"].values, strict=True):
                assert going == (step % len(plan) > 0)
                last = streams.get(lane, [])
                assert not last or before == last[-1] or target[0] == PAD
                streams[lane] = last + [token for token in target if token != PAD]
                if not last:
                    streams[lane, "before"] = before
        assert sorted(lane for lane in streams if not isinstance(lane, tuple)) == list(range(1, plan.lanes + 1))
        found = [token for lane in range(1, plan.lanes + 1) for token in streams[lane]]
        turns = [whole[place:] + whole[:place] for place in range(len(whole))]
        assert found in turns
        assert streams[1, "before"] == found[-1]
    assert (
        plan.batch(plan.rows(1)[::2], 1)["target"].values.tolist() == plan.batch(plan.rows(1), 1)["target"].values[::2].tolist()
    )


def test_epochs_begin_at_places_that_the_seed_decides(column):
    text = LongText(column, np.arange(len(ROWS)))
    starts = {
        seed: [Lanes(text, 1, 100, seed).batch(np.array([0]), step)["target"].values.tolist() for step in range(4)]
        for seed in (1, 2)
    }
    assert starts[1] != starts[2]
    assert len({str(one) for one in starts[1]}) > 1
    assert starts[1] == [Lanes(text, 1, 100, 1).batch(np.array([0]), step)["target"].values.tolist() for step in range(4)]
