"""Batches: every row once an epoch, within the budget, in an order that (seed, epoch) decides alone."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data import pages
from regard.data import plan as plans
from regard.data.batching import collate, pad_lists
from regard.data.plan import BatchPlan
from regard.data.store import Sequences, Store
from regard.data.tokenizers import END, PAD


def lengths(rows: int, seed: int = 0, longest: int = 60) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    sources = random.integers(0, longest, rows)
    return sources.astype(np.int32), (sources * random.uniform(0.5, 1.5, rows)).astype(np.int32)


def batches(plan: BatchPlan, epoch: int) -> list[list[int]]:
    return [plan.batch(epoch * len(plan) + index).tolist() for index in range(len(plan))]


SHAPES = {"rows": st.integers(1, 2500), "budget": st.sampled_from([1, 50, 300, 4096]), "seed": st.integers(0, 2**63)}


@settings(max_examples=60, deadline=None)
@given(**SHAPES, shard=st.sampled_from([700, 1 << 20]))
def test_every_row_once_an_epoch_within_the_budget(rows, budget, seed, shard):
    sources, targets = lengths(rows, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "SHARD", shard)
        plan = BatchPlan(sources, targets, budget, seed)
    assert plan.shards == -(-rows // shard)
    for epoch in 0, 1, 17:
        cut = batches(plan, epoch)
        assert len(cut) == len(plan)
        assert sorted(row for batch in cut for row in batch) == list(range(rows))
        for batch in cut:
            longest = max(sources[batch].max(), targets[batch].max()) + 1
            assert len(batch) * longest <= budget or len(batch) == 1


def test_an_epoch_is_a_pure_function_of_seed_and_number():
    sources, targets = lengths(3000)
    plan, again = (BatchPlan(sources, targets, 1000, seed=5) for _ in range(2))
    seventh = batches(plan, 7)
    assert batches(plan, 2) != seventh
    assert batches(again, 7) == seventh == batches(plan, 7)
    assert batches(BatchPlan(sources, targets, 1000, seed=6), 7) != seventh


def test_epochs_differ_in_what_stands_together():
    sources, targets = lengths(5000, longest=20)
    plan = BatchPlan(sources, targets, 1000, seed=5)
    first, second = ({tuple(sorted(batch)) for batch in batches(plan, epoch)} for epoch in (0, 1))
    assert len(first & second) < len(first) / 4


def test_batches_are_not_in_the_order_of_their_length():
    sources, targets = lengths(5000)
    plan = BatchPlan(sources, targets, 500, seed=5)
    longest = [targets[batch].max() for batch in batches(plan, 0)]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.2


def test_the_order_is_the_one_of_every_machine():
    plan = BatchPlan(np.array([3, 1, 4, 1, 5, 9, 2, 6]), np.array([2, 7, 1, 8, 2, 8, 1, 8]), 16, seed=1)
    assert batches(plan, 0) == [[6, 0], [2, 4], [5], [1], [3], [7]]  # printed by this line once; a resumed run relies on it


def test_a_shard_is_laid_out_as_before_there_were_shards():
    """The digest was printed by the plan of a whole corpus, before it was cut into shards."""
    sources, targets = lengths(1000, seed=5)
    plan = BatchPlan(sources, targets, 300, seed=5, rows=np.flatnonzero(np.arange(1000) % 3))
    listed = json.dumps([batches(plan, epoch) for epoch in (0, 1, 5)])
    assert (len(plan), hashlib.sha256(listed.encode()).hexdigest()[:16]) == (91, "033ebdfe847302ee")


def test_many_rows_are_laid_out_as_before_they_were_sorted_in_blocks(monkeypatch):
    """The digest was printed by the plan that sorted a whole shard at once, as long rows are among them in four bytes."""
    sources, targets = lengths(150_000, seed=5)
    sources[7] = 40_000
    for block in plans.BLOCK, 1000:
        monkeypatch.setattr(plans, "BLOCK", block)
        plan = BatchPlan(sources, targets, 4096, seed=5, rows=np.flatnonzero(np.arange(150_000) % 1000))
        found = [plan.epoch(epoch) for epoch in (0, 1, 5)]
        listed = b"".join(part.astype("<i8").tobytes() for one in found for part in (one.rows, one.cuts, one.order))
        assert (len(plan), hashlib.sha256(listed).hexdigest()[:16]) == (1312, "8d5aa521171cac5e")


@settings(max_examples=20)
@given(**SHAPES, block=st.integers(1, 500))
def test_blocks_of_any_size_make_the_same_batches(rows, budget, seed, block):
    sources, targets = lengths(rows, seed)
    whole = BatchPlan(sources, targets, budget, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plans, "BLOCK", block)
        plan = BatchPlan(sources, targets, budget, seed)
        for ours, theirs in zip((plan.shard, plan.epoch(3)), (whole.shard, whole.epoch(3)), strict=True):
            assert (ours.rows == theirs.rows).all()
            assert (ours.cuts == theirs.cuts).all()


def test_a_step_of_any_shard_is_found_from_nothing(monkeypatch):
    """Plans made anew agree on every step in whatever order they are asked, with one shard in memory."""
    monkeypatch.setattr(plans, "SHARD", 300)
    given = *lengths(1000), 200, 5
    whole = [batches(BatchPlan(*given), epoch) for epoch in range(3)]
    plan, count = BatchPlan(*given), len(BatchPlan(*given))
    for step in np.random.default_rng(1).permutation(3 * count).tolist():
        assert plan.batch(step).tolist() == whole[step // count][step % count]


def test_shards_are_alike_and_change_places(monkeypatch):
    monkeypatch.setattr(plans, "SHARD", 500)
    sources, targets = np.sort(lengths(4000)[0]), np.sort(lengths(4000)[1])  # a corpus in the order of its lengths
    plan = BatchPlan(sources, targets, 300, seed=5)
    means = [sources[plan.lay_out(number).rows].mean() for number in range(plan.shards)]
    assert max(means) - min(means) < 0.1 * np.mean(means)
    firsts = {batches(plan, epoch)[0][0] % plan.shards for epoch in range(12)}
    assert len(firsts) > 4


@pytest.mark.parametrize("kept", [1 << 10, 1 << 30])
def test_rows_are_read_alike_from_files_that_stay_mapped_and_others(tmp_path, monkeypatch, kept):
    for name, value in {"KEPT": kept, "FEW": 100, "PART": 70}.items():
        monkeypatch.setattr(pages, name, value)
    sources, random = lengths(3000)[0], np.random.default_rng(1)
    tokens, offsets = random.integers(0, 60_000, sources.sum()).astype("<u2"), np.concatenate([[0], np.cumsum(sources)])
    tokens.tofile(tmp_path / "tokens")
    offsets.astype("<i8").tofile(tmp_path / "offsets")
    side = Sequences(np.memmap(tmp_path / "tokens", "<u2", mode="r"), np.memmap(tmp_path / "offsets", "<i8", mode="r"))
    assert (side.pages.file is None) == (side.lengths.pages.file is None) == (kept == 1 << 30)
    for rows in np.arange(3000), np.array([5, 2999, 0, 5]), np.arange(7, 3000, 11), np.zeros(0, np.int64):
        assert (side.lengths[rows] == sources[rows]).all()
        values, counts = side.gather(rows)
        assert (counts == sources[rows]).all()
        assert values.tolist() == [token for row in rows for token in tokens[offsets[row] : offsets[row + 1]].tolist()]
    assert (np.asarray(side.lengths) == sources).all()
    assert (len(side.lengths), side.lengths[np.arange(3)].dtype) == (3000, np.dtype(np.int32))


@given(step=st.integers(0, 2000))
def test_a_step_is_found(step):
    plan = BatchPlan(*lengths(200), 300, seed=5)
    epoch, index = plan.locate(step)
    assert epoch * len(plan) + index == step
    assert 0 <= index < len(plan)
    assert plan.batch(step).tolist() == batches(plan, epoch)[index]


def test_a_part_of_the_rows():
    sources, targets = lengths(1000)
    chosen = np.flatnonzero(np.arange(1000) % 3 == 0)
    plan = BatchPlan(sources, targets, 300, seed=5, rows=chosen)
    assert sorted(row for batch in batches(plan, 0) for row in batch) == chosen.tolist()


def test_no_rows_make_no_batches():
    assert len(BatchPlan(np.zeros(0, np.int32), np.zeros(0, np.int32), 300, seed=5)) == 0


def test_padding_is_rare():
    sources, targets = lengths(50_000, longest=50)
    plan = BatchPlan(sources, targets, 4096, seed=1)
    real = int((sources + targets + 2).sum())
    padded = sum(len(batch) * (sources[batch].max() + targets[batch].max() + 2) for batch in batches(plan, 0))
    assert 1 - real / padded < 0.08


def store_of(sources: list[list[int]], targets: list[list[int]]) -> Store:
    sides = {}
    for name, side in (("source", sources), ("target", targets)):
        offsets = np.cumsum([0, *map(len, side)])
        sides[name] = Sequences(np.array([token for ids in side for token in ids], np.uint16), offsets)
    return Store(sides, lines=np.arange(1, len(sources) + 1), facts={})


SIDE = st.lists(st.integers(4, 60_000), max_size=6)


@settings(deadline=None)
@given(pairs=st.lists(st.tuples(SIDE, SIDE), min_size=1, max_size=8), data=st.data())
def test_collate_against_a_plain_reference(pairs, data):
    rows = data.draw(st.lists(st.integers(0, len(pairs) - 1), min_size=1, max_size=8))
    store = store_of([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    batch = collate(store, np.array(rows))

    def padded(sequences: list[list[int]]) -> list[list[int]]:
        longest = max(map(len, sequences))
        return [ids + [PAD] * (longest - len(ids)) for ids in sequences]

    sources, targets = ([list(pairs[row][side]) for row in rows] for side in (0, 1))
    assert list(batch.columns) == ["source", "target"]
    assert batch["source"].values.tolist() == padded([[*ids, END] for ids in sources])
    assert batch["target"].values.tolist() == padded([[*ids, END] for ids in targets])
    assert batch["source"].lengths.tolist() == [len(ids) + 1 for ids in sources]
    assert batch["target"].lengths.tolist() == [len(ids) + 1 for ids in targets]
    assert store.positions("target", np.array(rows)) == batch["target"].lengths.sum()
    assert batch.rows.tolist() == rows
    assert {part.dtype for column in batch.columns.values() for part in column[:2]} | {batch.rows.dtype} == {np.dtype(np.int64)}
    assert [column[2:] for column in batch.columns.values()] == [(None, 1)] * 2
    assert batch.get("copies") is batch.get("links") is None
    matrix, counts = pad_lists(sources)
    assert (matrix == batch["source"].values).all()
    assert (counts == batch["source"].lengths).all()


@pytest.mark.parametrize("sequences", [[[]], [[], [5]], []])
def test_empty_sequences(sequences):
    matrix, counts = pad_lists(sequences)
    assert counts.tolist() == [len(ids) + 1 for ids in sequences]
    assert matrix.shape == (len(sequences), max(counts, default=1))
