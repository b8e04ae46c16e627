"""One trial: the figures against brute force, and that training teaches."""

import dataclasses
import math
import signal
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch.nn import functional

from regard.errors import UserError
from regard.lab.predictor import carry
from regard.lab.search import Hyperparameters
from regard.lab.settings import SETTINGS, Size
from regard.lab.tasks import ACCURACY, NATS, TASKS, Loaded
from regard.lab.texts import generated
from regard.lab.trial import build, measure, train, training_of
from regard.lab.windows import IGNORE, Rows, Stream, WindowFeed
from regard.models.device import on_device
from regard.models.interface import LossOptions
from regard.nn.recurrent.scan import scan
from regard.training.distributed import Group
from regard.training.loop import Trainer

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


def tensors(window):
    return [torch.from_numpy(window[name].values) for name in ("source", "target")]


def lanes_of(windows):
    whole = list(windows.once(SIZE.batch, 10**6))
    return [(inputs, targets) for window in whole for inputs, targets in zip(*tensors(window), strict=True)]


def rows():
    asked = torch.where(torch.rand(42, 7) < 0.4, IGNORE, torch.randint(9, (42, 7)))
    return Rows(torch.randint(9, (42, 7)).numpy(), asked.numpy())


def stream():
    return Stream(torch.randint(9, (287,)).numpy())


def loaded(windows):
    return Loaded(9, windows, windows, windows)


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
    data = TASKS[task].load(setting, generated(600))
    model = build(cell, data.vocabulary, 32, 1.0, seed=1)
    figure = partial(measure, model, data.test, size, TASKS[task].figure)
    before = figure()
    valid = train(model, data, size, Hyperparameters(rate, 1.0, 1.0), updates, seed=1)
    assert valid == measure(model, data.valid, size, NATS) < math.inf
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
    step = torch.optim.AdamW.step

    def spy(self, *arguments):
        rates.append(self.param_groups[0]["lr"])
        gradients = [parameter.grad for group in self.param_groups for parameter in group["params"]]
        norms.append(float(torch.cat([gradient.flatten() for gradient in gradients]).norm()))
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", spy)
    train(build("tanh", 9, 6, 1.0, seed=1), loaded(rows()), SIZE, Hyperparameters(0.01, 1.0, 0.02), 4, seed=1)
    assert rates == pytest.approx([0.01, 0.0075, 0.005, 0.0025])
    assert max(norms) <= 0.02 * 1.0001


def test_divergence_is_told_and_told_early():
    model, choice = build("tanh", 9, 6, math.inf, seed=1), Hyperparameters(0.01, 1.0, 1.0)
    assert train(model, loaded(rows()), SIZE, choice, 3, seed=1) == math.inf
    assert train(model, loaded(rows()), SIZE, choice, 10**9, seed=1) == math.inf


def test_one_step_that_is_not_finite_is_divergence(monkeypatch):
    """The main loop leaves it out and goes on; a comparison must not."""
    model = build("tanh", 9, 6, 1.0, seed=1)
    loss, losses = model.loss, []

    def spoilt(batch, options):
        losses.append(loss(batch, options))
        return losses[-1]._replace(total=losses[-1].total * (math.nan if len(losses) == 2 else 1.0))

    monkeypatch.setattr(model, "loss", spoilt)
    assert train(model, loaded(rows()), SIZE, Hyperparameters(0.01, 1.0, 1.0), 4, seed=1) == math.inf
    assert len(losses) == 4


def test_the_state_goes_on_in_training_and_the_gradient_does_not():
    """The losses of all windows are that of the lanes read whole; a window's gradient is that of reading it from a state."""
    model = build("gru", 9, 6, 1.0, seed=3)
    tokens = stream()
    whole, cut = ([on_device(one, torch.device("cpu")) for one in tokens.once(SIZE.batch, steps)] for steps in (10**6, 5))
    losses = [model.loss(window) for window in cut]
    torch.testing.assert_close(sum(one.total for one in losses), model.loss(whole[0]).total, rtol=1e-5, atol=1e-5)
    assert sum(int(one.number) for one in losses) == 286
    assert not model.state.hidden.requires_grad


def test_an_interrupted_trial_is_no_result(monkeypatch):
    model, asked = build("tanh", 9, 6, 1.0, seed=1), []
    loss = model.loss
    monkeypatch.setattr(model, "loss", lambda *given: (asked.append(signal.raise_signal(signal.SIGINT)), loss(*given))[1])
    with pytest.raises(KeyboardInterrupt):
        train(model, loaded(rows()), SIZE, Hyperparameters(0.01, 1.0, 1.0), 4, seed=1)
    assert len(asked) == 1


@pytest.mark.parametrize("carries", [True, False])
def test_steps_with_a_state_of_the_last_one_are_not_replayed(carries, monkeypatch):
    monkeypatch.setattr(Group, "alone_on_gpu", True)
    model = build("tanh", 9, 6, 1.0, seed=1)
    assert model.carries_state
    model.carries_state = carries
    training = training_of(Hyperparameters(0.01, 1.0, 1.0), 4)
    trainer = Trainer(model, WindowFeed(iter(())), training, None, Group(0, 1, torch.device("cpu")), dict)
    assert (trainer.replay is None) is carries


def test_a_trial_leaves_no_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(build("tanh", 9, 6, 1.0, seed=1), loaded(rows()), SIZE, Hyperparameters(0.01, 1.0, 1.0), 4, seed=1)
    assert not list(tmp_path.iterdir())


def test_options_that_a_cell_has_no_use_for():
    with pytest.raises(UserError, match="likelihood alone"):
        build("tanh", 9, 6, 1.0, seed=1).part_names(LossOptions(label_smoothing=0.1))


def test_building_leaves_the_random_numbers_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, two, other = (build("gru", 9, 6, 1.0, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one.embed.weight, two.embed.weight)
    assert not torch.equal(one.embed.weight, other.embed.weight)
