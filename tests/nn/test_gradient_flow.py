"""|dL/dh_t| against a loop that keeps every gradient by hand."""

import pytest
import torch

from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.gradient_flow import gradient_flow, watched
from regard.nn.recurrent.scan import scan


def by_hand(cell, inputs, lengths, loss):
    """h_t's gradients by retain_grad, a row and a step at a time; what follows a row's end is its last state."""
    rows, kept = [], []
    for row, length in enumerate(lengths.tolist()):
        state, states = cell.zero_state(inputs[:1]), []
        for time in range(length):
            state = cell(inputs[row : row + 1, time], state)
            state.hidden.retain_grad()
            states.append(state.hidden)
        kept.append(states)
        rows.append(torch.stack([*states, *states[-1:] * (inputs.shape[1] - length)], dim=1))
    loss(torch.cat(rows)).backward()
    return [torch.stack([hidden.grad.norm() for hidden in states]) for states in kept]


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_the_norms_are_those_of_every_states_gradient(name, ragged):
    cell, inputs = CELLS[name](5, 7).double(), torch.randn(3, 6, 5, dtype=torch.float64)
    lengths = torch.tensor([6, 1, 3]) if ragged else torch.full((3,), 6)
    weights = torch.randn(3, 6, 7, dtype=torch.float64)

    def loss(outputs):
        return (outputs * weights).sin().sum()

    with gradient_flow() as flow:
        outputs, _ = scan(cell, inputs, None, lengths if ragged else None)
    loss(outputs).backward()
    assert flow.norms().shape == (6, 3)
    for row, norms in enumerate(by_hand(cell, inputs, lengths, loss)):
        torch.testing.assert_close(flow.norms()[: len(norms), row], norms)


def test_gradients_vanish_in_a_tanh_cell_of_small_weights_and_not_in_an_open_lstm():
    """Through tanh, |dL/dh_{t-1}| <= |U| |dL/dh_t|; an LSTM whose forget gate is open hands its memory's gradient on."""
    inputs, norms = torch.randn(4, 30, 5), {}
    for name in ("tanh", "lstm"):
        cell = CELLS[name](5, 16)
        if name == "tanh":
            cell.from_hidden.weight.data = 0.5 * torch.nn.init.orthogonal_(torch.empty(16, 16))
        else:
            cell.from_input.bias.data[16:32] = 5.0
        with gradient_flow() as flow:
            outputs, _ = scan(cell, inputs)
            outputs[:, -1].sum().backward()
        norms[name] = flow.norms()
    tanh = norms["tanh"]
    assert (tanh[:-1] <= 0.5001 * tanh[1:]).all()
    assert (tanh[0] <= 0.5**29 * tanh[-1]).all()
    assert (norms["lstm"][0] > 1e-3 * norms["lstm"][-1]).all()


def test_a_step_that_the_loss_does_not_reach_has_no_gradient():
    cell, inputs = CELLS["gru"](5, 7), torch.randn(2, 4, 5)
    with gradient_flow() as flow:
        outputs, _ = scan(cell, inputs)
    outputs[:, 1].sum().backward()
    norms = flow.norms()
    assert norms[2:].eq(0).all()
    assert norms[:2].gt(0).all()


def test_several_scans_are_told_apart_and_nothing_is_watched_outside():
    cell, inputs = CELLS["lstm"](5, 7), torch.randn(2, 4, 5)
    with gradient_flow() as outer:
        with gradient_flow() as inner:
            short, _ = scan(cell, inputs[:, :2])
            long, _ = scan(cell, inputs)
        assert watched() is outer
    assert watched() is None
    scan(cell, inputs)
    (short.sum() + 3 * long.sum()).backward()
    assert [len(steps) for steps in inner.scans] == [2, 4]
    assert outer.scans == []
    assert inner.norms(0).shape == (2, 2)
    torch.testing.assert_close(inner.norms(1)[-1], torch.full((2,), 3 * 7**0.5))
    torch.testing.assert_close(inner.norms(0)[-1], torch.full((2,), 7**0.5))


def test_norms_before_backward_are_refused():
    with gradient_flow() as flow:
        scan(CELLS["gru"](5, 7), torch.randn(2, 4, 5))
    with pytest.raises(RuntimeError, match="call backward"):
        flow.norms()


def test_watching_changes_no_number():
    cell, inputs = CELLS["mut1"](5, 7), torch.randn(2, 4, 5)
    with gradient_flow():
        watched_outputs, _ = scan(cell, inputs)
    torch.testing.assert_close(watched_outputs, scan(cell, inputs)[0])
