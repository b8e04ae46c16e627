"""Every cell against torch.nn; every fast path against the loop."""

import pytest
import torch

from regard.nn.cells import CELLS
from regard.nn.scan import fused_scan, loop, reverse_within, scan

ORACLES = {"tanh": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def oracle_of(name, cell):
    oracle = ORACLES[name](cell.input_size, cell.hidden_size, batch_first=True).to(cell.from_input.weight)
    for parameter, ours in zip(oracle.parameters(), cell.weights, strict=True):
        parameter.data = ours.data
    return oracle


def make(name, dtype=torch.float64, input_size=5, hidden_size=7, batch=3):
    cell = CELLS[name](input_size, hidden_size).to(dtype)
    parts = [torch.randn(batch, hidden_size, dtype=dtype, requires_grad=True) for _ in cell.State._fields]
    return cell, cell.State(*parts)


def test_every_cell_has_an_oracle():
    assert ORACLES.keys() == CELLS.keys()


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("time", [1, 4, 17])
def test_the_loop_is_torch_nn_from_any_state(name, time):
    cell, state = make(name)
    inputs = torch.randn(3, time, 5, dtype=torch.float64)
    many = tuple(part[None] for part in state)
    expected, last = oracle_of(name, cell)(inputs, many if len(many) > 1 else many[0])
    ours, final = loop(cell, inputs, state)
    torch.testing.assert_close(ours, expected)
    for part, theirs in zip(final, last if isinstance(last, tuple) else (last,), strict=True):
        torch.testing.assert_close(part, theirs[0])


@pytest.mark.parametrize("name", CELLS)
def test_the_loop_passes_gradcheck(name):
    cell, state = make(name, hidden_size=3, input_size=2, batch=2)
    inputs = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)

    def run(inputs, *arguments):
        parts, weights = arguments[: len(state)], arguments[len(state) :]
        names = [name for name, _ in cell.named_parameters()]
        step = dict(zip(names, weights, strict=True))
        outputs, final = torch.func.functional_call(Scanner(cell), {f"cell.{k}": v for k, v in step.items()}, (inputs, parts))
        return outputs, *final

    weights = [parameter.detach().clone().requires_grad_() for parameter in cell.parameters()]
    assert torch.autograd.gradcheck(run, (inputs, *state, *weights))


class Scanner(torch.nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, inputs, parts):
        return loop(self.cell, inputs, self.cell.State(*parts))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(("batch", "time"), [(1, 1), (3, 17), (2, 33)])
def test_the_fused_scan_equals_the_loop_in_values_and_gradients(name, batch, time, device):
    cell, state = make(name, torch.float32, batch=batch)
    cell = cell.to(device)
    state = cell.State(*(part.detach().to(device).requires_grad_() for part in state))
    inputs = torch.randn(batch, time, 5, device=device, requires_grad=True)
    leaves = [inputs, *state, *cell.parameters()]
    noise = torch.randn(batch, time, 7, device=device)
    results = []
    for way in (loop, fused_scan):
        outputs, final = way(cell, inputs, state)
        total = (outputs * noise).sum() + sum(part.square().sum() for part in final)
        results.append([outputs, *final, *torch.autograd.grad(total, leaves)])
    for ours, theirs in zip(*results, strict=True):  # float32 sums in another order, over up to 33 steps
        assert torch.linalg.vector_norm(theirs - ours) <= 1e-4 * torch.linalg.vector_norm(ours)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", CELLS)
def test_a_scan_in_two_parts_equals_one(name, fused):
    cell, _ = make(name, torch.float32)
    inputs = torch.randn(3, 9, 5)
    whole, final = scan(cell, inputs, fused=fused)
    first, state = scan(cell, inputs[:, :4], fused=fused)
    second, last = scan(cell, inputs[:, 4:], state, fused=fused)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    for ours, theirs in zip(last, final, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("name", CELLS)
def test_no_time_leaves_the_state_as_it_was(name):
    cell, state = make(name, torch.float32)
    outputs, final = scan(cell, torch.randn(3, 0, 5), state)
    assert outputs.shape == (3, 0, 7)
    assert final is state


@pytest.mark.parametrize("name", CELLS)
def test_one_step_of_the_cell_is_one_step_of_the_scan(name):
    cell, state = make(name, torch.float32)
    inputs = torch.randn(3, 5)
    torch.testing.assert_close(cell(inputs, state).hidden, scan(cell, inputs[:, None], state)[0][:, 0])


def test_reversal_within_lengths():
    inputs = torch.arange(10.0).view(2, 5, 1)
    turned = reverse_within(inputs, torch.tensor([5, 2]))
    assert turned.flatten().tolist() == [4, 3, 2, 1, 0, 6, 5, 7, 8, 9]
    torch.testing.assert_close(reverse_within(turned, torch.tensor([5, 2])), inputs)
