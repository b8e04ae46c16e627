"""One trial: the figures against brute force, and that training teaches."""

import dataclasses
import math
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch.nn import functional

from regard.lab.predictor import carry
from regard.lab.search import Choice
from regard.lab.settings import SETTINGS, Size
from regard.lab.tasks import ACCURACY, NATS, TASKS
from regard.lab.texts import generated
from regard.lab.trial import build, measure, train
from regard.lab.windows import IGNORE, Rows, Stream
from regard.nn.recurrent.scan import scan

SMOKE = SETTINGS["smoke"]
SIZE = Size(parameters=0, search=0, updates=0, batch=4, window=5)


def brute_force(model, inputs, targets):
    """Σ -log p and hits of one lane, read whole, without windows and without the fused loss."""
    outputs, _ = scan(model.cell, model.embed(inputs[None]), None)
    logits = model.output(outputs)[0]
    loss = hits = asked = 0
    for scores, target in zip(logits.double(), targets.tolist(), strict=True):
        if target != IGNORE:
            loss += float(functional.cross_entropy(scores, torch.tensor(target)))
            hits += int(scores.argmax()) == target
            asked += 1
    return loss, hits, asked


def lanes_of(windows):
    whole = list(windows.once(SIZE.batch, 10**6))
    return [(inputs, targets) for window in whole for inputs, targets in zip(window.inputs, window.targets, strict=True)]


def rows():
    return Rows(torch.randint(9, (42, 7)), torch.where(torch.rand(42, 7) < 0.4, IGNORE, torch.randint(9, (42, 7))))


def stream():
    return Stream(torch.randint(9, (287,)))


@pytest.mark.parametrize("make", [rows, stream])
@pytest.mark.parametrize("cell", ["tanh", "lstm", "gru"])
def test_figures_equal_brute_force(cell, make):
    model, windows = build(cell, 9, 6, 2.0, seed=3), make()
    with torch.no_grad():
        losses, hits, asked = (
            sum(part) for part in zip(*(brute_force(model, *lane) for lane in lanes_of(windows)), strict=True)
        )
    assert 0 < hits < asked
    assert measure(model, windows, SIZE, ACCURACY) == pytest.approx(hits / asked)
    assert measure(model, windows, SIZE, NATS) == pytest.approx(losses / asked, rel=1e-5)


class Tape(NamedTuple):
    hidden: torch.Tensor
    past: torch.Tensor


def test_a_tape_is_cut_between_windows():
    state = Tape(torch.rand(2, 3, requires_grad=True), torch.arange(20.0, requires_grad=True).view(2, 10))
    carried = carry(state, Tape(torch.zeros(2, 3), torch.zeros(2, 0)), window=4)
    torch.testing.assert_close(carried.hidden, state.hidden)
    torch.testing.assert_close(carried.past, state.past[:, 6:])
    assert not carried.hidden.requires_grad
    assert not carried.past.requires_grad


def taught(task, setting, cell, size, rate, updates):
    loaded = TASKS[task].load(setting, generated(600))
    model = build(cell, loaded.vocabulary, 32, 1.0, seed=1)
    figure = partial(measure, model, loaded.test, size, TASKS[task].figure)
    before = figure()
    assert train(model, loaded.train, size, Choice(rate, 1.0, 1.0), updates, seed=1)
    return before, figure()


def test_arithmetic_is_learnt():
    """Problems that were not trained on. Whoever only ever ends the answer is right once in two to four characters."""
    before, after = taught(
        "arith", dataclasses.replace(SMOKE, problems=5000), "gru", Size(0, 0, 0, batch=50, window=0), 0.02, 300
    )
    assert before < 0.2
    assert after > 0.5


def test_tags_are_learnt():
    """Most of what can be known without a memory of names: `<` after `>`, `>` after letters, `/` after `<`."""
    before, after = taught("xml", SMOKE, "lstm", Size(0, 0, 0, batch=8, window=20), 0.02, 150)
    assert before < 0.15
    assert after > 0.4


def test_words_are_learnt():
    before, after = taught("words", SMOKE, "tanh", Size(0, 0, 0, batch=16, window=16), 0.01, 60)
    assert before > 0.9 * math.log(SMOKE.vocabulary)
    assert after < before - 1.5


def test_the_rate_falls_to_nothing_and_the_gradient_is_clipped(monkeypatch):
    rates, norms = [], []
    step = torch.optim.Adam.step

    def spy(self, *arguments):
        rates.append(self.param_groups[0]["lr"])
        gradients = [parameter.grad for group in self.param_groups for parameter in group["params"]]
        norms.append(float(torch.cat([gradient.flatten() for gradient in gradients]).norm()))
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.Adam, "step", spy)
    assert train(build("tanh", 9, 6, 1.0, seed=1), rows(), SIZE, Choice(0.01, 1.0, 0.02), 4, seed=1)
    assert rates == pytest.approx([0.01, 0.0075, 0.005, 0.0025])
    assert max(norms) <= 0.02 * 1.0001


def test_divergence_is_told_and_told_early():
    windows = (
        rows()
    )  # tanh holds inf at 1, and whether inf - inf is computed is up to the CPU's products: relu lets inf through
    assert not train(build("relu", 9, 6, 1.0, seed=1), windows, SIZE, Choice(1e30, 1.0, 1.0), 5, seed=1)
    model = build("tanh", 9, 6, math.inf, seed=1)
    assert not train(model, windows, SIZE, Choice(0.01, 1.0, 1.0), 10**9, seed=1)


def test_building_leaves_the_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two, other = (build("gru", 9, 6, 1.0, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one.embed.weight, two.embed.weight)
    assert not torch.equal(one.embed.weight, other.embed.weight)
