"""Flash attention under Triton's interpreter: test_interpreted.py runs this file in a process with TRITON_INTERPRET=1.

Tiles are 16 by 16 there, so that 33 keys are three tiles and the last is nearly empty.
"""

import os

import pytest
import torch
from test_flash_kernels import Trial, check_hard, check_soft

from regard.nn.kernels.attention import flash_launch, flash_plans
from regard.nn.kernels.attention.flash import flash_attention, hard_attention

assert os.environ.get("TRITON_INTERPRET") == "1"

SHAPES = [(1, 1, 1, 1, 5, 3), (2, 1, 33, 17, 16, 16), (2, 2, 17, 33, 19, 21)]  # batch, heads, target, source, size, value
ODD = SHAPES[2]


@pytest.fixture(params=[False, True], ids=["narrow", "wide"])
def wide(request, monkeypatch):
    """Wide heads are those of more than 16 here, read 16 columns at a time; the workspace holds 16 rows."""
    if request.param:
        for name in ("NARROW", "KEPT"):
            monkeypatch.setattr(flash_plans, name, {4: 16})
        for name, number in {"STRIP": 16, "COLUMNS": 16, "WORKSPACE": 1}.items():
            monkeypatch.setattr(flash_plans, name, number)
            monkeypatch.setattr(flash_launch, name, number)


@pytest.mark.parametrize("shape", SHAPES)
def test_soft(shape):
    check_soft(Trial(shape))


@pytest.mark.slow  # with windows below
def test_centres(wide):
    check_soft(Trial(ODD), centred=True, hides=True)


def test_windows_and_centres(wide):
    """Three blocks of queries, which look at different keys."""
    check_soft(Trial((2, 1, 40, 33, 19, 21)), centred=True, hides=True, window=(1, 4))


def test_windows_of_all_heads_together():
    check_soft(Trial(ODD), window=(1, 4))


@pytest.mark.parametrize("options", [{}, {"hides": True, "window": (1, 4)}])
def test_hard(options, wide):
    check_hard(Trial(ODD), **options)


def test_the_lowest_of_equal_scores_and_nothing_at_all():
    query, keys = torch.ones(1, 1, 3, 4), torch.ones(1, 1, 40, 4)
    look = hard_attention(query, keys, keys, first=torch.tensor([[[0, 17, 50]]]), last=torch.tensor([[[39, 39, 60]]]))
    assert look.place.tolist() == [[[0, 17, -1]]]
    assert look.context[0, 0, 2].eq(0).all()
    empty = flash_attention(query, keys[:, :, :0], keys[:, :, :0])
    assert empty.context.eq(0).all()
    assert empty.log_sum.eq(float("-inf")).all()


def test_what_is_hidden_reaches_nothing(wide):
    """Not even if it is no number."""
    trial, outputs = Trial((2, 1, 17, 19, 19, 21)), []
    visible = trial.visible()
    for filler in (0.0, float("nan")):
        for part in trial.inputs[1:]:
            part.masked_fill_(~visible[:, None, :, None], filler)
        outputs.append(trial.ours(lambda *parts: flash_attention(*parts, visible=visible)[:2]))
    assert all(torch.equal(x, y) for x, y in zip(*outputs, strict=True))


def test_only_the_logarithm_of_the_sum_is_used():
    """Then the centre and the values get no gradient, and nothing else is written to."""
    trial, centre = Trial(ODD), Trial(ODD).centre().requires_grad_()
    inputs = [part.clone().requires_grad_() for part in trial.inputs]
    flash_attention(*inputs, centre=centre).log_sum.sum().backward()
    assert centre.grad is None
    assert all(torch.equal(x, y) for x, y in zip(inputs, trial.inputs, strict=True))
