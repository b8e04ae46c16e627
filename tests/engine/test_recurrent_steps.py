"""An LSTM's steps in one call against the same cell of the same integers, step by step."""

import pytest
import torch

from regard.engine import native
from regard.engine.products import PRECISIONS
from regard.engine.recurrent import FusedLSTMCell, with_products
from regard.nn.recurrent.cells import LSTMCell
from regard.nn.recurrent.scan import scan

pytestmark = pytest.mark.skipif(native.library() is None, reason="no compiler, or a processor without AVX512-VNNI")


def pair(inputs, hidden, precision="int8", **given):
    cell = LSTMCell(inputs, hidden, **given).requires_grad_(False)
    for parameter in cell.parameters():
        parameter.mul_(3)
    fused = with_products(cell, PRECISIONS[precision])
    plain = with_products(cell, PRECISIONS[precision])
    plain.__class__ = LSTMCell
    assert type(fused) is FusedLSTMCell
    assert type(cell) is LSTMCell
    return fused, plain


def close(found, expected, precision="int8"):
    """The next integer here and there."""
    apart = (found - expected).abs()
    assert precision == "int8" or apart.max() < 1e-5
    assert apart.median() < 1e-6
    assert apart.max() < 5e-2


@pytest.mark.parametrize(("rows", "hidden"), [(1, 16), (2, 5), (7, 33), (17, 70)])
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_all_steps_and_each(rows, hidden, ends, precision):
    fused, plain = pair(9, hidden, precision)
    inputs, lengths = torch.randn(rows, 11, 9) * 4, torch.randint(0, 12, (rows,)) if ends else None
    start = fused.start(torch.randn(rows, hidden), torch.randn(rows, hidden) * 2)
    kept = [one.clone() for one in start]
    (found, last), (expected, wanted) = (scan(cell, inputs, start, lengths) for cell in (fused, plain))
    for one, other in zip((found, *last), (expected, *wanted), strict=True):
        close(one, other, precision)
    for one, before in zip(start, kept, strict=True):
        assert one.equal(before)
    state, step = start, fused.bind()
    for time in range(3):
        state = step(fused.project(inputs)[:, time], state)
    if not ends:
        torch.testing.assert_close(state.hidden, found[:, 2])


def test_gates_that_are_shut_or_open_stay_finite():
    fused, plain = pair(3, 16)
    inputs = torch.full((2, 4, 3), 1e4) * torch.tensor([1.0, -1.0])[:, None, None]
    found, _ = scan(fused, inputs)
    assert found.isfinite().all()
    close(found, scan(plain, inputs)[0])


def test_other_cells_and_precisions_go_step_by_step():
    normed, _ = pair(4, 8, layer_norm=True)
    assert not normed.is_fused
    assert not with_products(LSTMCell(4, 8), PRECISIONS["bfloat16"]).is_fused
