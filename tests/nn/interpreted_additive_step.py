"""The kernels of a decoder's loop under Triton's interpreter: test_interpreted.py runs this file with TRITON_INTERPRET=1."""

import os

import pytest
import torch
from paths import GATED
from test_additive_step import Trial, formula
from test_gates import Step, distance, losses

from regard.nn.kernels.attention import additive_step
from regard.nn.kernels.layers import entropy

assert os.environ.get("TRITON_INTERPRET") == "1"

SHAPES = [(3, 1, 5, 7, 9, 1), (2, 2, 21, 7, 5, 2), (2, 1, 17, 16, 33, 1), (2, 1, 1, 1, 1, 1)]


ALONE = pytest.mark.slow  # masks and tiles have nothing to do with each other


@pytest.mark.parametrize(
    ("masked", "tile"),
    [
        (False, additive_step.TILE),
        (True, 256),
        pytest.param(True, additive_step.TILE, marks=ALONE),
        pytest.param(False, 256, marks=ALONE),
    ],
)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_look_is_the_formula(shape, masked, tile, monkeypatch):
    """A small tile lets a sentence take several."""
    monkeypatch.setattr(additive_step, "TILE", tile)
    assert Trial(shape, masked=masked, penalty=masked).distance() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [(), (0,), (1,), (2,)])
def test_some_of_the_gradients(wanted):
    assert Trial((3, 2, 5, 7, 9, 2)).distance(wanted) < 1e-5


def test_a_row_with_nothing_visible_gives_and_gets_nothing():
    trial = Trial((3, 1, 5, 7, 9, 1), looks=1)
    context, weights, keys, values, _, query = trial.results(False)
    for part in (context, weights, keys, values, query):
        assert part[0].eq(0).all()
        assert part[1:].ne(0).any()


def test_what_is_not_visible_reaches_nothing():
    trial = Trial((3, 1, 20, 7, 9, 1), looks=2)
    before = trial.results(False)
    for tensor in trial.tensors[:2]:
        tensor[~trial.visible[:, None].expand(tensor.shape[:3])] = float("nan")
    for one, other in zip(trial.results(False), before, strict=True):
        assert torch.equal(one, other)


def test_keys_of_heads_that_lie_side_by_side():
    """[batch, source, heads x size] seen as [batch, heads, source, size]: nothing is copied, gradients come back so."""
    flat, score_vector, query = torch.randn(2, 5, 12, requires_grad=True), torch.randn(3, 4), torch.randn(2, 1, 3, 4)
    ways = []
    for leaf in (flat, flat.detach().double().requires_grad_()):
        keys = leaf.view(2, 5, 3, 4).transpose(1, 2)
        weight, asked = score_vector.to(leaf.dtype), query.to(leaf.dtype)
        fused = leaf is flat
        context, _ = (
            additive_step.bind_step(keys, keys, None, weight)(asked) if fused else formula(asked, keys, keys, None, weight)
        )
        ways.append([context, *torch.autograd.grad(context.square().sum(), leaf)])
    assert distance(*ways) < 1e-5


def test_a_pass_backward_forgets_one_that_did_not_reach_the_keys():
    keys, query = torch.randn(2, 1, 5, 4, requires_grad=True), torch.randn(2, 1, 1, 4, requires_grad=True)
    look, total = additive_step.bind_step(keys, keys, None, torch.ones(1, 4)), 0.0
    for _ in range(2):
        total = total + look(query)[0].square().sum()
    torch.autograd.grad(total, query, retain_graph=True)
    once = torch.autograd.grad(total, keys, retain_graph=True)
    assert distance(once, torch.autograd.grad(total, keys)) == 0


@pytest.mark.parametrize("name", GATED)
def test_a_fused_step_is_the_cells_update(name):
    assert Step(name, 3, 5).distance() < 1e-6


@pytest.mark.slow
def test_units_of_several_programs(monkeypatch):
    monkeypatch.setattr("regard.nn.kernels.recurrent.gates.UNITS", 16)
    assert Step("lstm_peephole", 2, 37).distance() < 1e-6


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("tile", [16, entropy.TILE])
def test_the_fused_loss(tile, smoothing, monkeypatch):
    monkeypatch.setattr(entropy, "TILE", tile)
    ours, exact = losses(7, 37, smoothing)
    assert distance(ours, exact) < 1e-5
