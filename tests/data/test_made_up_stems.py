"""Rows with made-up stems, against what such a row must be: a loop over its symbols."""

import numpy as np
import pytest

from regard.data import made_up_stems
from regard.data.batching import Batch, Column
from regard.data.made_up_stems import MadeUpStems, shared
from regard.data.store import Store
from regard.data.tokenizer import END
from regard.errors import UserError

OFFSET = 50  # a source id is that of the target and this
ROWS = [
    ([10, 11, 12, 13, 14, 30], [10, 11, 12, 13, 14, 20]),  # a stem of five, a tag, an ending
    ([10, 11, 30], [10, 11, 21]),  # too short
    ([15, 16, 17, 18, 31], [22, 15, 16, 17, 18]),  # a prefix
    ([12, 14, 16, 30, 11, 13, 15], [12, 14, 16, 20, 11, 13, 15]),  # two stretches
]


def batch_of(numbers):
    source, target, copies = (np.zeros((len(numbers), 9), np.int64) for _ in range(3))
    for at, number in enumerate(numbers):
        read, written = ROWS[number]
        source[at, : len(read) + 1] = [*(np.array(read) + OFFSET), END]
        copies[at, : len(read)] = read
        target[at, : len(written) + 1] = [*written, END]
    columns = {"source": Column(source), "target": Column(target), "copies": Column(copies, size=40)}
    return Batch(columns, np.array(numbers))


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(made_up_stems, "collate", lambda store, rows: batch_of([int(row) for row in rows]))
    return lambda chance, seed=1: MadeUpStems(Store({}, np.arange(len(ROWS)), {}), chance, seed)


def test_places_in_shared_stretches():
    found = [shared(np.array(read), np.array([*written, END, 0])) for read, written in ROWS]
    stem = [(at, at) for at in range(5)]
    assert found == [stem, [], [(0, 1), (1, 2), (2, 3), (3, 4)], [(at, at) for at in (0, 1, 2, 4, 5, 6)]]


def test_only_shared_symbols_change_and_both_sides_get_the_same(made_up):
    change, seen = made_up(1.0), set()
    assert change.symbols.tolist() == [[one + OFFSET, one] for one in range(10, 19)]
    before = batch_of(range(4))
    for step in range(60):
        after = change(before, step)
        for row, (read, written) in enumerate(ROWS):
            places = dict(shared(np.array(read), np.array(written)))
            for at in range(9):
                new = after["source"].values[row, at]
                if at in places:
                    seen.add(int(new))
                    assert new == after["copies"].values[row, at] + OFFSET == after["target"].values[row, places[at]] + OFFSET
                else:
                    assert new == before["source"].values[row, at]
            stays = [at for at in range(9) if at not in places.values()]
            assert (after["target"].values[row, stays] == before["target"].values[row, stays]).all()
    assert seen == {one + OFFSET for one in range(10, 19)}


def test_it_depends_on_seed_step_and_row_and_not_on_the_batch(made_up):
    change = made_up(0.7)
    whole = change(batch_of(range(4)), 5)
    some = change(batch_of([3, 0]), 5)
    for name in ("source", "target", "copies"):
        assert some[name].values.tolist() == whole[name].values[[3, 0]].tolist()
    others = [change(batch_of(range(4)), 6), made_up(0.7, seed=2)(batch_of(range(4)), 5)]
    assert all(other["target"].values.tolist() != whole["target"].values.tolist() for other in others)


def test_the_chance_is_the_chance(made_up):
    change, before = made_up(0.3), batch_of([0])
    changed = [(change(before, step)["target"].values != before["target"].values).any() for step in range(2000)]
    assert np.mean(changed) == pytest.approx(0.3, abs=0.04)


def test_nothing_shared_is_said(made_up, monkeypatch):
    monkeypatch.setattr("test_made_up_stems.ROWS", [([10, 11, 12], [20, 21])])
    with pytest.raises(UserError, match="no row has three symbols in a row"):
        _ = made_up(1.0).symbols
