"""Additive attention under Triton's interpreter: test_interpreted.py runs this file with TRITON_INTERPRET=1."""

import os

import pytest
import torch
from test_additive_kernels import REACHES, Trial, saturate

from regard.nn.kernels.attention import additive_plan
from regard.nn.kernels.attention.additive import additive_attention, applies

assert os.environ.get("TRITON_INTERPRET") == "1"


ODD = (2, 2, 17, 33, 5, 7)
OTHERS = [(2, 1, 1, 1, 1, 1), (2, 1, 3, 70, 6, 17), (1, 2, 2, 1, 33, 3)]
CASES = [(ODD, False), (ODD, True), *((shape, True) for shape in OTHERS)]


@pytest.mark.parametrize(("shape", "limited"), [*CASES, *(pytest.param(one, False, marks=pytest.mark.slow) for one in OTHERS)])
def test_values_and_gradients(shape, limited):
    """Heads; one query and many; a size that is no multiple of 4, and one of two tiles; more keys than a tile."""
    trial = Trial(shape, limited=limited)
    assert applies(trial.inputs[0], trial.inputs[1], trial.inputs[3])
    assert not trial.wrong()


@pytest.mark.parametrize(("shape", "rows"), [((2, 1, 70, 9, 2, 3), 64), ((3, 1, 5, 9, 2, 3), 2 * 16)])
def test_in_chunks_of_rows_and_of_sequences(shape, rows, monkeypatch):
    """One of two tiles of queries at a time; two of three sequences."""
    monkeypatch.setattr(additive_plan, "WORKSPACE", 4 * rows * 64)
    trial = Trial(shape, limited=True)
    trial.limits[0][0] = True
    assert not trial.wrong()


@pytest.mark.parametrize("reach", REACHES)
def test_saturation(reach):
    assert not saturate(Trial((2, 1, 5, 7, 6, 3)), reach).wrong(1e-4)  # float32 itself has 1e-5 of 90 - 89.99


def test_the_highest_score_may_come_last():
    trial = Trial((1, 1, 2, 70, 2, 3))
    trial.inputs[1].copy_(torch.linspace(-3, 3, 70)[:, None])
    trial.inputs[2].abs_().add_(1)
    assert not trial.wrong()


@pytest.mark.parametrize("given", [0, 1, 2])
def test_one_limit_alone(given):
    trial = Trial((2, 1, 5, 9, 2, 3), limited=True)
    trial.limits = tuple(limit if place == given else None for place, limit in enumerate(trial.limits))
    assert not trial.wrong()


@pytest.mark.parametrize("key", [0, 63, 64, 69])
def test_a_range_of_one_key(key):
    """At the edges of tiles of 64."""
    trial = Trial((1, 1, 2, 70, 2, 3))
    trial.limits = None, torch.full((1, 1, 2), key), torch.full((1, 1, 2), key)
    context = additive_attention(*trial.inputs, *trial.limits)[0]
    torch.testing.assert_close(context, trial.inputs[3][:, :, [key, key]])
    assert not trial.wrong(1e-4)  # gradients of nothing but the value are 0


def test_ranges_of_one_head_are_those_of_all():
    trial = Trial((1, 3, 5, 9, 2, 3), limited=True)
    trial.limits = None, trial.limits[1][:, :1], trial.limits[2][:, :1]
    assert not trial.wrong()


def test_what_nobody_sees_reaches_nothing():
    trial = Trial((2, 2, 5, 9, 2, 3), limited=True)
    before = trial.results(additive_attention)
    for place in (1, 3):
        trial.inputs[place].masked_fill_(~trial.limits[0][:, None, :, None], torch.nan)
    after = trial.results(additive_attention)
    assert [what for what in before if not before[what].equal(after[what])] == []
    assert before["gradient of keys"][0].eq(0).all()


@pytest.mark.parametrize("shape", [(2, 1, 0, 3, 4, 4), (2, 1, 3, 0, 4, 4), (0, 1, 3, 3, 4, 4)])
def test_of_nothing_comes_nothing(shape):
    found = Trial(shape).results(additive_attention)
    assert all(one.eq(0).all() for one in found.values())


def test_inputs_may_lie_in_memory_as_they_like():
    trial = Trial((1, 2, 5, 9, 4, 3))
    before = trial.results(additive_attention)
    trial.inputs = [one.mT.contiguous().mT for one in trial.inputs]
    trial.back = trial.back.mT.contiguous().mT
    after = trial.results(additive_attention)
    assert [what for what in before if not before[what].equal(after[what])] == []


def test_kinds_of_numbers_may_differ():
    trial = Trial((2, 1, 5, 9, 4, 3))
    trial.inputs[3], trial.back = trial.inputs[3].bfloat16(), trial.back.bfloat16()
    assert not trial.wrong(1e-2)
