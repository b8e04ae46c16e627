"""Layers and stacks against torch.nn on packed sequences, and what lies between layers against its formula."""

import pytest
import torch

from regard.errors import UserError
from regard.nn.dropout import LockedDropout
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.connections import CONNECTIONS
from regard.nn.recurrent.layers import RecurrentLayer, RecurrentStack, recurrent_mask
from regard.nn.state import detach_state

ORACLES = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "tanh": torch.nn.RNN}
LENGTHS = torch.tensor([6, 3, 1])
FEW = ["tanh", "lstm", "gru_cho", "mut1", "lstm_peephole", "lstm_tape"]


def pairs(stack):
    return [(layer, number) for layer in stack.layers for number in range(len(layer.cells))]


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("name", ORACLES)
def test_a_stack_is_torch_nn_on_packed_sequences(name, directions):
    """All outputs, and h and c at each row's true end, from any first state; gradients too."""
    stack = RecurrentStack(CELLS[name], 5, 4, layers=2, directions=directions)
    oracle = ORACLES[name](5, 4, 2, batch_first=True, bidirectional=directions == 2)
    ours = [weight for layer, number in pairs(stack) for weight in layer.cells[number].weights]
    for parameter, weight in zip(oracle.parameters(), ours, strict=True):
        parameter.data = weight.detach().clone()
    inputs = torch.randn(3, 6, 5)
    starts = [torch.randn(2 * directions, 3, 4) for _ in range(stack.layers[0].cells[0].starts)]
    packed = torch.nn.utils.rnn.pack_padded_sequence(inputs, LENGTHS, batch_first=True)
    theirs, ends = oracle(packed, tuple(starts) if len(starts) > 1 else starts[0])
    expected, _ = torch.nn.utils.rnn.pad_packed_sequence(theirs, batch_first=True)
    parts = iter(zip(*(start.unbind(0) for start in starts), strict=True))
    states = [[cell.start(*next(parts)) for cell in layer.cells] for layer in stack.layers]
    outputs, last = stack(inputs, LENGTHS, states)
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(outputs[row, :length], expected[row, :length])
    found = [state for layer in last for state in layer]
    for part, end in enumerate(ends if isinstance(ends, tuple) else (ends,)):
        torch.testing.assert_close(torch.stack([state[part] for state in found]), end)
    real = (torch.arange(6) < LENGTHS[:, None])[..., None]
    (outputs * real).square().sum().backward()
    expected.square().sum().backward()
    for parameter, (layer, number, at) in zip(
        oracle.parameters(), [(*pair, at) for pair in pairs(stack) for at in range(4)], strict=True
    ):
        torch.testing.assert_close(layer.cells[number].weights[at].grad, parameter.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CELLS)
def test_a_layer_of_any_cell_ends_where_each_row_ends(name):
    """The right-to-left direction ends at the first word: reading a row alone gives the same."""
    layer = RecurrentLayer(CELLS[name], 5, 4, directions=2)
    inputs = torch.randn(3, 6, 5)
    outputs, last = layer(inputs, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone, end = layer(inputs[row : row + 1, :length])
        torch.testing.assert_close(outputs[row : row + 1, :length], alone)
        for direction in range(2):
            torch.testing.assert_close(last[direction].hidden[row], end[direction].hidden[0])
        torch.testing.assert_close(last[0].hidden[row], outputs[row, length - 1, :4])
        torch.testing.assert_close(last[1].hidden[row], outputs[row, 0, 4:])


def test_three_directions_are_refused():
    for directions in (0, 3):
        with pytest.raises(UserError, match="one or two directions"):
            RecurrentLayer(CELLS["gru"], 5, 4, directions=directions)


def between(name, connection, inputs, outputs, cells):
    """h_k;  h_k + x_k where they have one size (Wu et al. 2016);  V [h_k; x_k] + b;  [h_k; half of each W x_k + b]
    (Zhou et al. 2016)."""
    if name == "residual":
        return outputs + inputs if inputs.shape[-1] == outputs.shape[-1] else outputs
    if name == "fast_forward":
        return torch.cat([outputs, inputs], dim=-1) @ connection.join.weight.T + connection.join.bias
    if name == "fast_forward_half":
        shares = [torch.nn.functional.linear(inputs, cell.from_input.weight, cell.from_input.bias) for cell in cells]
        return torch.cat([outputs, *(share[..., : 3 * 4 // 2] for share in shares)], dim=-1)
    return outputs


@pytest.mark.parametrize("input_size", [5, 8])
@pytest.mark.parametrize("name", [name for name, kind in CONNECTIONS.items() if not kind.attends])  # these: test_connections.py
def test_what_lies_between_layers_follows_its_formula(name, input_size):
    stack = RecurrentStack(CELLS["gru"], input_size, 4, layers=3, directions=2, connection=CONNECTIONS[name])
    inputs = torch.randn(3, 6, input_size)
    outputs, last = stack(inputs, LENGTHS)
    reads, gives = inputs, None
    for depth, layer in enumerate(stack.layers):
        if depth:
            reads = between(name, stack.connections[depth - 1], reads, gives, stack.layers[depth - 1].cells)
        gives, ends = layer(reads, LENGTHS)
        torch.testing.assert_close(last[depth][1].hidden, ends[1].hidden)
    torch.testing.assert_close(outputs, gives)
    assert stack.output_size == outputs.shape[-1] == 8
    parameters = sum(parameter.numel() for parameter in stack.connections.parameters())
    assert parameters == ((input_size + 8) * 8 + 8 + 16 * 8 + 8 if name == "fast_forward" else 0)


def test_every_connection_has_a_formula():
    assert CONNECTIONS.keys() == {"plain", "residual", "fast_forward", "fast_forward_half", "self_attention"}


def test_locked_dropout_drops_the_same_at_every_step():
    inputs = torch.full((50, 7, 40), 2.0)
    kept = LockedDropout(0.25)(inputs) / inputs
    assert kept.eq(kept[:, :1]).all()
    assert abs(kept[:, 0].eq(0).float().mean().item() - 0.25) < 5 * (0.25 * 0.75 / 2000) ** 0.5
    torch.testing.assert_close(kept[kept != 0], torch.full_like(kept[kept != 0], 1 / 0.75), rtol=1e-3, atol=0)
    assert not kept[0, 0].equal(kept[1, 0])  # each sequence has its own
    assert LockedDropout(0.25).eval()(inputs) is inputs
    assert LockedDropout(0.0)(inputs) is inputs
    assert LockedDropout(1.0)(inputs).eq(0).all()


@pytest.mark.parametrize("locked", [False, True])
def test_a_stack_drops_the_input_of_every_layer_but_not_the_output(locked):
    seen = []
    stack = RecurrentStack(CELLS["gru"], 5, 4, layers=2, dropout=0.5, locked=locked)
    for layer in stack.layers:
        layer.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    inputs = torch.rand(20, 30, 5) + 1
    outputs, _ = stack(inputs)
    for read in seen:
        dropped = read.eq(0)
        assert 0.3 < dropped.float().mean() < 0.7
        assert dropped.eq(dropped[:, :1]).all() == locked
    assert outputs.ne(0).all()
    seen.clear()
    stack.eval()(inputs)
    assert seen[0].equal(inputs)
    assert all(read.ne(0).all() for read in seen)


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_the_recurrent_mask_has_the_rate_and_keeps_the_mean(rate):
    cell = CELLS["gru"](5, 40)
    mask = recurrent_mask(cell, torch.zeros(100, 3, 5), rate, training=True)
    assert mask.shape == (100, 40)
    assert abs(mask.eq(0).float().mean().item() - rate) < 5 * (rate * (1 - rate) / 4000) ** 0.5
    torch.testing.assert_close(mask[mask != 0], torch.full_like(mask[mask != 0], 1 / (1 - rate)))
    assert recurrent_mask(cell, torch.zeros(100, 3, 5), rate, training=False) is None
    assert recurrent_mask(cell, torch.zeros(100, 3, 5), 0.0, training=True) is None


def test_recurrent_dropout_drops_the_same_units_at_every_step():
    """h_t = h_{t-1} ∗ mask here, so after T steps a unit is 0 or 2^T: never a mixture."""
    layer = RecurrentLayer(CELLS["relu"], 3, 8, recurrent_dropout=0.5)
    cell = layer.cells[0]
    for parameter in cell.parameters():
        parameter.data.zero_()
    cell.from_hidden.weight.data = torch.eye(8)
    start = [cell.start(torch.ones(30, 8))]
    outputs, _ = layer(torch.zeros(30, 5, 3), None, start)
    first = outputs[:, 0]
    assert set(first.unique().tolist()) == {0.0, 2.0}
    for time in range(5):
        torch.testing.assert_close(outputs[:, time], torch.where(first == 0, 0.0, 2.0 ** (time + 1)))
    assert not first[0].equal(first[1])
    outputs, _ = layer.eval()(torch.zeros(30, 5, 3), None, start)
    assert outputs.eq(1).all()


def test_the_two_directions_have_masks_of_their_own():
    layer = RecurrentLayer(CELLS["relu"], 3, 32, directions=2, recurrent_dropout=0.5)
    for cell in layer.cells:
        for parameter in cell.parameters():
            parameter.data.zero_()
        cell.from_hidden.weight.data = torch.eye(32)
    outputs, _ = layer(torch.zeros(1, 1, 3), None, [cell.start(torch.ones(1, 32)) for cell in layer.cells])
    left, right = outputs.chunk(2, dim=-1)
    assert not left.equal(right)


@pytest.mark.parametrize("name", FEW)
def test_windows_with_carried_states_read_as_one_long_text(name):
    """Truncated backpropagation: the same outputs, and no gradient crosses the cut."""
    stack = RecurrentStack(CELLS[name], 5, 4, layers=2, connection=CONNECTIONS["residual"])
    text = torch.randn(2, 9, 5, requires_grad=True)
    whole, end = stack(text)
    states, outputs = None, []
    for window in text.split(3, dim=1):
        out, states = stack(window, None, states)
        outputs.append(out)
        states = detach_state(states)
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole)
    for ours, theirs in zip(states, end, strict=True):
        torch.testing.assert_close(ours[0].hidden, theirs[0].hidden)
        assert not ours[0].hidden.requires_grad
    (last,) = torch.autograd.grad(outputs[-1].sum(), text)
    assert last[:, :6].eq(0).all()
    assert last[:, 6:].ne(0).any()
    (through,) = torch.autograd.grad(whole[:, 6:].sum(), text)
    assert through[:, :6].ne(0).any()


@pytest.mark.parametrize("name", FEW)
def test_states_carried_without_the_cut_carry_the_gradient(name):
    stack = RecurrentStack(CELLS[name], 5, 4, layers=2)
    text = torch.randn(2, 6, 5, requires_grad=True)
    (whole,) = torch.autograd.grad(stack(text)[0].square().sum(), text)
    first, states = stack(text[:, :3])
    second, _ = stack(text[:, 3:], None, states)
    (ours,) = torch.autograd.grad(first.square().sum() + second.square().sum(), text)
    torch.testing.assert_close(ours, whole, rtol=1e-4, atol=1e-5)


def test_layer_norm_reaches_every_cell_of_a_stack():
    stack = RecurrentStack(CELLS["lstm"], 5, 4, layers=2, directions=2, layer_norm=True)
    assert all(layer.cells[number].normed for layer, number in pairs(stack))
    stack = RecurrentStack(CELLS["lstm"], 5, 4, layers=2, directions=2)
    assert not any(layer.cells[number].normed for layer, number in pairs(stack))
