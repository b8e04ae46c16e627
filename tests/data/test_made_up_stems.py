"""Rows with made-up stems, against what such a row must be: a loop over its symbols."""

import itertools
from collections import Counter

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
    return lambda chance, seed=1, known=40: MadeUpStems(
        Store({}, np.arange(len(ROWS)), {"target_vocabulary": known}), chance, seed
    )


def test_shared_stretches():
    found = [shared(np.array(read), np.array([*written, END, 0])) for read, written in ROWS]
    assert found == [[(0, 0, 5)], [], [(0, 1, 4)], [(0, 0, 3), (4, 4, 3)]]


FORMS = {  # around other stems: what is read and what is written
    0: lambda one: ([*one, 30], [*one, 20]),
    1: lambda: ROWS[1],
    2: lambda one: ([*one, 31], [22, *one]),
    3: lambda one, two: ([*one, 30, *two], [*one, 20, *two]),
}


def stems_of(row, target):
    """The stretches between what stays in a target."""
    whole = [int(one) for one in target if one not in (0, END)]
    stays = set(whole) if row == 1 else {20, 22}
    return [list(part) for other, part in itertools.groupby(whole, lambda one: one in stays) if not other]


def test_stems_are_of_other_symbols_and_lengths_and_the_same_on_both_sides(made_up):
    change, lengths, symbols = made_up(1.0), [Counter(), Counter(), Counter(), Counter()], set()
    assert change.symbols.tolist() == [[one + OFFSET, one] for one in range(10, 19)]
    for step in range(400):
        after = change(batch_of(range(4)), step)
        assert after["source"].values.shape[1] <= 9  # as long as the longest row that was seen
        for row in range(4):
            source, copies, target = (after[name].values[row] for name in ("source", "copies", "target"))
            stems = stems_of(row, target)
            read, written = FORMS[row](*stems)
            assert [one for one in source if one] == [*(np.array(read) + OFFSET), END]
            assert [one for one in copies if one] == read
            assert [one for one in target if one] == [*written, END]
            lengths[row][tuple(map(len, stems))] += 1
            symbols |= {one for stem in stems for one in stem}
    assert symbols == set(range(10, 19))
    assert {one for (one,) in lengths[0]} == {3, 4, 5, 6, 7}
    assert {one for (one,) in lengths[2]} == {2, 3, 4, 5, 6}
    assert lengths[3].keys() == {(a, b) for a in (2, 3, 4) for b in (2, 3, 4) if a + b <= 7}  # there is room for one more


def test_words_that_the_vocabulary_lacks_are_not_drawn(made_up):
    """15 to 18 are numbered past it, in each row anew."""
    assert made_up(1.0, known=15).symbols.tolist() == [[one + OFFSET, one] for one in range(10, 15)]


def test_lengths_stay_where_links_name_places(made_up):
    links = Column(np.zeros((4, 9, 9), np.float32), times=2)
    for step in range(50):
        before = batch_of(range(4))
        after = made_up(1.0)(Batch({**before.columns, "links": links}, before.rows), step)
        for name in ("source", "copies", "target"):
            assert ((after[name].values > 0).sum(axis=1) == (before[name].values > 0).sum(axis=1)).all()


def test_lengths_are_told_where_the_column_has_them(made_up):
    before = batch_of(range(4))
    source = before["source"]._replace(lengths=(before["source"].values > 0).sum(axis=1))
    after = made_up(1.0)(Batch({**before.columns, "source": source}, before.rows), 3)
    assert after["source"].lengths.tolist() == (after["source"].values > 0).sum(axis=1).tolist()


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
    changed = [change(before, step)["target"].values[0, :5].tolist() != ROWS[0][1][:5] for step in range(2000)]
    assert np.mean(changed) == pytest.approx(0.3, abs=0.04)


def test_nothing_shared_is_said(made_up, monkeypatch):
    monkeypatch.setattr("test_made_up_stems.ROWS", [([10, 11, 12], [20, 21])])
    with pytest.raises(UserError, match="no row has three symbols in a row"):
        _ = made_up(1.0).symbols
