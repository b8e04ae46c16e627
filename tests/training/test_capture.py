"""A step as a CUDA graph equals the step computed directly: loss, gradients, chance, sums over several calls."""

import copy
import gc
import weakref
from collections import deque
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard.training.capture import Captured, CapturedGraph, Recording, copy_all, key_of, no_collection


class Model(nn.Module):
    """With chance in it, and a parameter that nothing reaches."""

    def __init__(self, rate=0.5):
        super().__init__()
        self.first, self.second = nn.Linear(6, 32), nn.Linear(32, 1)
        self.dropout, self.idle = nn.Dropout(rate), nn.Parameter(torch.ones(3))

    def forward(self, inputs):
        return self.second(self.dropout(torch.tanh(self.first(inputs)))).square().mean()


def gradients(model):
    return [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()]


def same(ours, theirs, exactly=True):
    tolerance = {"rtol": 0, "atol": 0} if exactly else {}
    for one, other in zip(ours, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, **tolerance)


class Pair:
    """A model, and its copy that is computed directly."""

    def __init__(self, device, rate=0.5, **options):
        self.model = Model(rate).to(device)
        self.copy = copy.deepcopy(self.model)
        self.captured = Captured(self.model, self.model.parameters(), **options)
        self.device = device

    def step(self, rows, seed=0, calls=1):
        """Seeds, adds up so many calls, compares, and forgets the gradients."""
        batches = [torch.randn(rows, 6).to(self.device) for _ in range(calls)]
        torch.manual_seed(seed)
        ours = [self.captured(inputs) for inputs in batches]
        torch.manual_seed(seed)
        losses = [self.copy(inputs) for inputs in batches]
        for loss in losses:
            loss.backward()
        same([*ours, *gradients(self.model)], [*(loss.detach() for loss in losses), *gradients(self.copy)])
        for model in (self.model, self.copy):
            model.zero_grad(set_to_none=True)
        return ours[-1]


def test_on_a_cpu_everything_is_computed_directly():
    pair = Pair("cpu")
    for seed in range(5):
        pair.step(4, seed, calls=2)
    assert not pair.captured.recordings
    assert not pair.captured.refused


class Played:
    """A recording that only counts, where there is no GPU."""

    reached, takes = (), (None, None)

    def replay(self, inputs):
        return inputs[0].sum() + 100


def test_a_shape_waits_for_its_turn_and_longer_each_time_its_graph_was_dropped(monkeypatch):
    """Two shapes take turns where one graph is kept; `!` is a replay. Each is computed twice before it is recorded. The second
    takes the place of the first, which now waits four times."""
    monkeypatch.setattr("regard.training.capture.on_gpu", lambda inputs: True)
    monkeypatch.setattr("regard.training.capture.memory_left", lambda: True)
    weight = nn.Parameter(torch.ones(()))
    captured = Captured(lambda tensor: (tensor * weight).sum(), [weight], after=2, keep=1)
    monkeypatch.setattr(captured, "recorded", lambda inputs: Played())
    history = "".join("ab"[rows] + ("!" if captured(torch.zeros(rows)) else "") for rows in [0, 1] * 8)
    assert history == "abab" + "a!b!" + "ab!" * 4 + "a!b"


class Simulated(Captured):
    """Where there is no GPU: what a graph does when it is played, computed from where it finds its inputs."""

    def recorded(self, inputs):
        _, gradients = self.differentiated(*inputs)
        reached = [number for number, gradient in enumerate(gradients) if gradient is not None]
        return Recording(deque([self.take(inputs, reached)]), inputs, reached)

    def take(self, inputs, reached):
        places, loss = self.places(), self.differentiated(*inputs)[0].clone()

        def replay():
            found, gradients = self.differentiated(*inputs)
            loss.copy_(found)
            copy_all([places[number] for number in reached], [one for one in gradients if one is not None])

        return CapturedGraph(SimpleNamespace(replay=replay), loss)


def test_what_graphs_leave_is_added_to_what_was_there(monkeypatch):
    """One to three calls a step, of one shape or of two in turn; some gradients are there before."""
    monkeypatch.setattr("regard.training.capture.on_gpu", lambda inputs: True)
    monkeypatch.setattr("regard.training.capture.memory_left", lambda: True)
    pair = Pair("cpu", rate=0.0)
    pair.captured = Simulated(pair.model, pair.model.parameters(), after=1)
    for step, rows in enumerate([4, 4, 4, 5, 4, 5, 5, 4, 4]):
        pair.step(rows, calls=1 + step % 3)
        for parameter in (*pair.model.first.parameters(), *pair.copy.first.parameters()):
            parameter.grad = torch.ones_like(parameter) if step % 2 else None
    assert len(pair.captured.recordings) == 2
    assert all(len(one.takes) == 2 for one in pair.captured.recordings.values())


def test_of_several_losses_the_first_is_differentiated_and_all_are_returned(monkeypatch):
    """Directly, and from where a graph leaves them."""
    monkeypatch.setattr("regard.training.capture.on_gpu", lambda inputs: True)
    monkeypatch.setattr("regard.training.capture.memory_left", lambda: True)
    weight = nn.Parameter(torch.ones(()))
    captured = Simulated(lambda tensor: torch.stack([3 * weight, 5 * weight, weight]) * tensor.sum(), [weight], after=1)
    found = []
    for number in (1.0, 2.0, 4.0, 7.0):
        found.append(captured(torch.tensor([number])))
        assert weight.grad.item() == 3 * number
        weight.grad = None
    assert captured.recordings
    assert [one.tolist() for one in found] == [[3, 5, 1], [6, 10, 2], [12, 20, 4], [21, 35, 7]]


def test_two_takes_wait_until_a_shape_comes_twice_in_a_row(monkeypatch):
    monkeypatch.setattr("regard.training.capture.on_gpu", lambda inputs: True)
    monkeypatch.setattr("regard.training.capture.memory_left", lambda: True)
    weight = nn.Parameter(torch.ones(()))
    captured = Simulated(lambda tensor: (tensor * weight).sum(), [weight], after=1)
    takes = []
    for rows in (1, 2, 1, 2, 1, 2, 2):
        captured(torch.ones(rows))
        takes.append([len(one.takes) for one in captured.recordings.values()])
    assert takes[:5] == [[], [], [1], [1, 1], [1, 1]]
    assert takes[-1] == [1, 2]
    first = captured.recordings[key_of([torch.ones(2)])].takes[0]
    captured(torch.ones(2))
    assert captured.recordings[key_of([torch.ones(2)])].takes[0] is not first


def test_numbers_of_two_kinds_are_copied():
    into = [torch.zeros(2), torch.zeros(2), torch.zeros(1)]
    copy_all(into, [torch.ones(2, dtype=torch.bfloat16), torch.full((2,), 3.0), torch.full((1,), 5.0, dtype=torch.bfloat16)])
    assert [one.tolist() for one in into] == [[1, 1], [3, 3], [5]]


def test_a_gradient_that_two_parameters_share_is_copied():
    one, other = (nn.Parameter(torch.zeros(3)) for _ in range(2))
    Captured(lambda scale: ((one + other) * scale).sum(), [one, other])(torch.tensor(2.0))
    one.grad.mul_(5)
    assert other.grad.tolist() == [2.0] * 3


@pytest.mark.gpu
def test_a_graph_equals_direct_computation_with_dropout_and_sums():
    pair = Pair("cuda", after=2)
    for seed in range(6):
        pair.step(16, seed, calls=1 + seed % 3)
    assert len(pair.captured.recordings) == 1
    assert pair.model.idle.grad is None


@pytest.mark.gpu
def test_chance_differs_between_seeds_and_goes_on_without_one():
    pair, inputs = Pair("cuda", after=1), torch.ones(64, 6, device="cuda")
    losses = []
    for seed in (1, 1, 1, 2):
        torch.manual_seed(seed)
        losses.append(float(pair.captured(inputs)))
    losses.append(float(pair.captured(inputs)))
    assert pair.captured.recordings
    assert losses[0] == losses[1] == losses[2]
    assert len(set(losses)) == 3


@pytest.mark.gpu
def test_graphs_make_room_and_a_changed_weight_is_seen():
    pair = Pair("cuda", after=1, keep=2)
    for rows in [3, 4, 5] * 4:
        pair.step(rows)
        with torch.no_grad():
            for model in (pair.model, pair.copy):
                model.first.weight.mul_(0.9)
    assert len(pair.captured.recordings) == 2


class Left:
    """What only the search for garbage frees, as what an earlier run has left."""

    def __init__(self, held=None):
        self.held, self.itself = held, self


def test_no_garbage_is_found_while_a_graph_is_recorded():
    before, thresholds = gc.isenabled(), gc.get_threshold()
    gc.enable()
    gc.set_threshold(1)
    try:
        with no_collection():
            left = weakref.ref(Left())
            kept = [Left() for _ in range(100)]
            assert left() is not None
        assert gc.isenabled()
        kept += [Left() for _ in range(100)]
        assert left() is None
    finally:
        gc.set_threshold(*thresholds)
        if not before:
            gc.disable()


@pytest.mark.gpu
def test_a_second_run_in_one_process_records_its_graphs_though_the_first_left_garbage():
    """Models whose first graphs wait in a cycle to be freed; the search for garbage would find them in mid-recording."""
    thresholds = gc.get_threshold()
    try:
        for _ in range(3):
            pair = Pair("cuda", after=1)
            gc.set_threshold(*thresholds)
            for rows in (4, 4, 5, 5):
                pair.step(rows)
                gc.set_threshold(1)
            assert len(pair.captured.recordings) == 2
            Left(pair)
    finally:
        gc.set_threshold(*thresholds)


def test_values_that_are_no_tensors_belong_to_the_graph(monkeypatch):
    monkeypatch.setattr("regard.training.capture.on_gpu", lambda inputs: True)
    monkeypatch.setattr("regard.training.capture.memory_left", lambda: True)
    weight = nn.Parameter(torch.ones(()))
    captured = Captured(lambda tensor, scale, _: (tensor * weight).sum() * scale, [weight], after=1)
    monkeypatch.setattr(captured, "recorded", lambda inputs: Played())
    losses = [float(captured(torch.ones(2), scale, None)) for scale in (1, 1, 3, 3)]
    assert losses == [2.0, 102.0, 6.0, 102.0]


@pytest.mark.gpu
def test_a_buffer_changes_once_a_call():
    weight, count = nn.Parameter(torch.ones((), device="cuda")), torch.zeros((), device="cuda")
    captured = Captured(lambda tensor: (tensor * weight * count.add_(1)).sum(), [weight], after=1, buffers=[count])
    assert [float(captured(torch.ones(2, device="cuda"))) for _ in range(4)] == [2.0, 4.0, 6.0, 8.0]
    assert captured.recordings


@pytest.mark.gpu
def test_autocast_inside():
    model = Model(0.0).to("cuda")

    def compute(inputs):
        with torch.autocast("cuda", torch.bfloat16):
            return model(inputs)

    captured, inputs, found = Captured(compute, model.parameters(), after=1), torch.randn(8, 6, device="cuda"), []
    for _ in range(4):
        found.append([captured(inputs), *gradients(model)])
        model.zero_grad(set_to_none=True)
    assert captured.recordings
    for later in found[1:]:
        same(later, found[0])


@pytest.mark.gpu
def test_what_waits_for_the_gpu_is_computed_directly_and_named():
    model = nn.Linear(6, 1).to("cuda")

    def compute(inputs):
        outputs = model(inputs)
        return functional.mse_loss(outputs[outputs > -100], torch.zeros(int(outputs.ne(7).sum()), device="cuda"))

    captured, inputs = Captured(compute, model.parameters(), after=1), torch.randn(8, 6, device="cuda")
    losses = [float(captured(inputs)) for _ in range(4)]
    assert len(set(losses)) == 1
    assert not captured.recordings
    assert list(captured.refused.values())
