"""The persistent scan under Triton's interpreter: test_interpreted.py runs this file in a process with TRITON_INTERPRET=1.

One program a group only: interpreted programs run one after another and cannot wait for each other.
"""

import os

import odd_cells as odd
import pytest
import torch
from paths import GATED, TAPES, Trial, far
from test_scan import OneProduct, TwoProducts

from regard.nn.kernels.recurrent.equation import traceable
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.scan import scan

assert os.environ.get("TRITON_INTERPRET") == "1"


@pytest.mark.parametrize("ragged_and_masked", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("name", GATED)
def test_the_persistent_path_equals_the_loop(name, ragged_and_masked):
    """18 rows are two groups, the second nearly empty; 5 units fill a third of a tile."""
    trial = Trial(CELLS[name](3, 5), 18, 3, ragged_and_masked, ragged_and_masked)
    assert not far(trial.results("persistent"), trial.results("loop"))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1, 1, 3, 2), (2, 3, 7, 7), (3, 5, 4, 18)])
@pytest.mark.parametrize("name", ["lstm_peephole", "mut3"])
def test_odd_shapes(name, shape):
    batch, time, inputs, hidden = shape
    trial = Trial(CELLS[name](inputs, hidden), batch, time, ragged=True)
    assert not far(trial.results("persistent"), trial.results("loop"))


@pytest.mark.parametrize("ragged_and_masked", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("kind", [OneProduct, TwoProducts])
def test_a_users_own_cell(kind, ragged_and_masked):
    trial = Trial(kind(3, 5), 4, 5, ragged_and_masked, ragged_and_masked)
    assert not far(trial.results("persistent"), trial.results("loop"))


@pytest.mark.parametrize("name", ["lstm", "mut1"])
def test_a_scan_cut_in_two_equals_one(name):
    trial = Trial(CELLS[name](3, 5), 4, 6, ragged=True)
    cell, inputs, lengths, start = trial.cell, trial.inputs, trial.lengths, trial.cell.start(*trial.starts)
    whole, final = scan(cell, inputs, start, lengths, path="persistent")
    first, state = scan(cell, inputs[:, :2], start, lengths.clamp(max=2), path="persistent")
    second, last = scan(cell, inputs[:, 2:], state, (lengths - 2).clamp(min=0), path="persistent")
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    for ours, theirs in zip(last, final, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", ["lstm", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gru_cho", *TAPES))])
def test_what_stands_after_the_end_reaches_nothing(name):
    trial = Trial(CELLS[name](3, 5), 3, 3, ragged=True)
    path = "persistent" if name in GATED else "persistent_tape"
    before = trial.results(path)
    assert before["gradient of inputs"][trial.after].eq(0).all()
    trial.put_after(float("nan"))
    assert not far(trial.results(path), before, 1e-6)


@pytest.mark.parametrize("shape", [(3, 3, 4, 6), (2, 1, 3, 3)])
@pytest.mark.parametrize("ragged", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("name", TAPES)
def test_the_persistent_tape_equals_the_loop(name, ragged, shape):
    batch, time, inputs, hidden = shape
    trial = Trial(CELLS[name](inputs, hidden), batch, time, ragged)
    assert not far(trial.results("persistent_tape"), trial.results("loop"))


@pytest.mark.parametrize("kind", [kind for kind in odd.ODD if kind not in (*odd.NOT_CARRIED, *odd.NOT_TRACED)])
def test_an_odd_cell_that_is_not_refused_is_right(kind):
    trial = Trial(kind(3, 5), 4, 5, ragged=True)
    assert traceable(trial.cell)
    assert not far(trial.results("persistent"), trial.results("loop"))


def test_an_equation_belongs_to_its_cell_and_not_to_its_class():
    for leak in (0.5, 0.25):
        trial = Trial(odd.Leaky(3, 5), 4, 5)
        trial.cell.leak = leak
        assert not far(trial.results("persistent"), trial.results("loop"))
