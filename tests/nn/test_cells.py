"""Every cell against its equation in NumPy, against torch.nn where that has it, and against finite differences."""

import inspect

import numpy as np
import pytest
import torch
from equations import EQUATIONS, TAPES, Weights, run, sigmoid

from regard.errors import UserError
from regard.nn.recurrent.cells import CELLS, GatedCell
from regard.nn.recurrent.scan import reverse_within, scan

TORCH = {
    "tanh": torch.nn.RNN,
    "relu": lambda *sizes, **options: torch.nn.RNN(*sizes, nonlinearity="relu", **options),
    "lstm": torch.nn.LSTM,
    "lstm_b": torch.nn.LSTM,
    "gru": torch.nn.GRU,
}
GATED = [name for name, cell in CELLS.items() if issubclass(cell, GatedCell)]
LENGTHS = torch.tensor([0, 1, 4])


def make(name, input_size=5, hidden_size=7, batch=3, dtype=torch.float64, **options):
    """A cell and the vectors of a first state."""
    cell = CELLS[name](input_size, hidden_size, **options).to(dtype)
    return cell, [torch.randn(batch, hidden_size, dtype=dtype, requires_grad=True) for _ in range(cell.starts)]


def half_kept(batch, hidden):
    return torch.nn.functional.dropout(torch.ones(batch, hidden, dtype=torch.float64), 0.5)


def test_every_cell_has_an_oracle():
    assert EQUATIONS.keys() == CELLS.keys()


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("input_size", [5, 7])
@pytest.mark.parametrize("name", CELLS)
def test_the_loop_is_the_equation(name, input_size, ragged, masked, given):
    """From any state and from nothing, with an input of the state's size and of another, to each row's end."""
    cell, starts = make(name, input_size)
    inputs, mask = torch.randn(3, 4, input_size, dtype=torch.float64), half_kept(3, 7) if masked else None
    lengths = LENGTHS if ragged else None
    expected = run(name, cell, inputs, starts if given else None, lengths, mask)
    outputs, last = scan(cell, inputs, cell.start(*starts) if given else None, lengths, mask, path="loop")
    for row, states in enumerate(expected):
        torch.testing.assert_close(outputs[row].detach().numpy(), np.stack([state[0] for state in states[1:]]))
        for part in range(2 if name in TAPES else len(last)):
            torch.testing.assert_close(last[part][row].detach().numpy(), states[-1][part])


@pytest.mark.parametrize("time", [1, 4, 17])
@pytest.mark.parametrize("name", TORCH)
def test_the_loop_is_torch_nn_from_any_state(name, time):
    cell, starts = make(name)
    oracle = TORCH[name](5, 7, batch_first=True).double()
    for parameter, ours in zip(oracle.parameters(), cell.weights, strict=True):
        parameter.data = ours.data
    inputs, many = torch.randn(3, time, 5, dtype=torch.float64), tuple(start[None] for start in starts)
    expected, last = oracle(inputs, many if len(many) > 1 else many[0])
    outputs, final = scan(cell, inputs, cell.start(*starts), path="loop")
    torch.testing.assert_close(outputs, expected)
    for part, theirs in zip(final, last if isinstance(last, tuple) else (last,), strict=True):
        torch.testing.assert_close(part, theirs[0])


class Scanner(torch.nn.Module):
    def __init__(self, cell, lengths, mask, path):
        super().__init__()
        self.cell, self.lengths, self.mask, self.path = cell, lengths, mask, path

    def forward(self, inputs, starts):
        outputs, last = scan(self.cell, inputs, self.cell.start(*starts), self.lengths, self.mask, self.path)
        return outputs, *self.cell.end(last)


def passes_gradcheck(cell, starts, inputs, lengths=None, mask=None, path="loop"):
    names = [f"cell.{name}" for name, _ in cell.named_parameters()]

    def results(inputs, *arguments):
        parts, weights = arguments[: len(starts)], arguments[len(starts) :]
        parameters = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(Scanner(cell, lengths, mask, path), parameters, (inputs, parts))

    weights = [parameter.detach().clone().requires_grad_() for parameter in cell.parameters()]
    return torch.autograd.gradcheck(results, (inputs, *starts, *weights))


@pytest.mark.parametrize("ragged_and_masked", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_the_loop_passes_gradcheck(name, ragged_and_masked):
    """Inputs, every vector of the first state, every parameter; rows of length 0, 1 and 3; with recurrent dropout."""
    cell, starts = make(name, input_size=3, hidden_size=2)
    inputs = torch.randn(3, 3 if ragged_and_masked else 2, 3, dtype=torch.float64, requires_grad=True)
    lengths, mask = (torch.tensor([0, 1, 3]), half_kept(3, 2)) if ragged_and_masked else (None, None)
    assert passes_gradcheck(cell, starts, inputs, lengths, mask)


@pytest.mark.parametrize("name", ["mut1", "mut2"])
def test_the_loop_passes_gradcheck_where_x_enters_as_it_is(name):
    cell, starts = make(name, input_size=2, hidden_size=2, batch=2)
    assert passes_gradcheck(cell, starts, torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("name", ["mut1", "mut2"])
def test_x_has_a_matrix_of_its_own_only_where_sizes_differ(name):
    same, other = make(name, 7, 7)[0], make(name, 5, 7)[0]
    names = {key for key, _ in same.named_parameters()}
    assert {key for key, _ in other.named_parameters()} == names | {"resize.weight"}
    assert "resize.weight" not in names
    assert same.from_input.weight.shape == (2 * 7, 7)  # the third sum has no matrix


@pytest.mark.parametrize("name", ["mut1", "mut2"])
def test_x_really_enters_as_it_is(name):
    """Where all else is 0, h = z tanh(tanh(x)) or, from r = σ(x), h = z tanh(V (r h)) + (1 - z) h, with z = 1 / 2."""
    cell, _ = make(name, 4, 4)
    for parameter in cell.parameters():
        parameter.data.zero_()
    cell.from_reset.weight.data = torch.eye(4, dtype=torch.float64)
    inputs, hidden = torch.randn(2, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    entered = {"mut1": 0.5 * hidden + torch.tanh(inputs), "mut2": torch.sigmoid(inputs) * hidden}
    candidate = torch.tanh(entered[name])
    torch.testing.assert_close(cell(inputs, cell.start(hidden)).hidden, 0.5 * candidate + 0.5 * hidden)


@pytest.mark.parametrize("name", [name for name in GATED if name.startswith("lstm")])
def test_only_lstm_b_begins_with_an_open_forget_gate(name):
    """The biases of the forget gate add up to 1 exactly; nowhere else do biases begin as constants."""
    cell, _ = make(name, dtype=torch.float32)
    total = sum(parameter.data for key, parameter in cell.named_parameters() if key.endswith("bias"))
    blocks = total.view(-1, 7)
    constant = [number for number, block in enumerate(blocks) if block.eq(block[0]).all()]
    assert constant == ([1] if name == "lstm_b" else [])
    if name == "lstm_b":
        assert blocks[1].eq(1.0).all()


def test_lstm_b_begins_so_with_layer_norm_too():
    """A norm takes a bias inside it away, so its own bias is the one."""
    norms = make("lstm_b", layer_norm=True)[0].norms
    assert norms["x"].bias.tolist() == [0.0] * 7 + [1.0] * 7 + [0.0] * 14
    assert norms["h"].bias.eq(0).all()
    assert make("lstm", layer_norm=True)[0].norms["x"].bias.eq(0).all()


@pytest.mark.parametrize("terms", [("xh", "x", "xh"), ("xm", "xh", "xm"), ("xt", "x", "xt")])
def test_blocks_that_do_not_lie_side_by_side_are_told_with_the_class(terms):
    with pytest.raises(UserError, match=r"Gap: the blocks with '[hmt]' lie side by side"):
        type("Gap", (GatedCell,), {"terms": terms})


@pytest.mark.parametrize("name", ["lstm_f", "lstm_i", "lstm_o"])
def test_a_gate_that_is_fixed_has_no_parameters(name):
    count = sum(parameter.numel() for parameter in make(name)[0].parameters())
    assert count == 3 * (7 * 5 + 7 * 7 + 2 * 7)


def layer_norm(numbers, gain, bias):
    return (numbers - numbers.mean()) / np.sqrt(numbers.var() + 1e-5) * gain + bias


def normed(w, letter, numbers):
    return layer_norm(numbers, w.all[f"norms.{letter}.weight"], w.all[f"norms.{letter}.bias"])


def normed_lstm(w, x, state):
    """Ba et al. 2016, section 3.1 (equations 20 to 22): each product is normalised over all gates, then c."""
    h, c = state
    from_input = normed(w, "x", w.all["from_input.weight"] @ x + w.all["from_input.bias"])
    from_hidden = normed(w, "h", w.all["from_hidden.weight"] @ h + w.all["from_hidden.bias"])
    i, f, g, o = np.split(from_input + from_hidden, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(layer_norm(c, w.all["norm_memory.weight"], w.all["norm_memory.bias"])), c


def normed_gru_cho(w, x, state):
    (h,) = state
    x_r, x_z, x_h = np.split(normed(w, "x", w.all["from_input.weight"] @ x + w.all["from_input.bias"]), 3)
    h_r, h_z = np.split(normed(w, "h", w.all["from_hidden.weight"] @ h), 2)
    r, z = sigmoid(x_r + h_r), sigmoid(x_z + h_z)
    new = np.tanh(x_h + normed(w, "m", w.all["from_reset.weight"] @ (r * h)))
    return ((1 - z) * h + z * new,)


def normed_mut3(w, x, state):
    (h,) = state
    x_r, x_z, x_h = np.split(normed(w, "x", w.all["from_input.weight"] @ x + w.all["from_input.bias"]), 3)
    r = sigmoid(x_r + normed(w, "h", w.all["from_hidden.weight"] @ h))
    z = sigmoid(x_z + normed(w, "t", w.all["from_squashed.weight"] @ np.tanh(h)))
    new = np.tanh(x_h + normed(w, "m", w.all["from_reset.weight"] @ (r * h)))
    return ((1 - z) * h + z * new,)


NORMED = {"lstm": normed_lstm, "lstm_b": normed_lstm, "gru_cho": normed_gru_cho, "mut3": normed_mut3}


@pytest.mark.parametrize("name", NORMED)
def test_layer_norm_follows_its_equation(name):
    cell, starts = make(name, layer_norm=True)
    for key, parameter in cell.named_parameters():
        if "norm" in key:
            torch.nn.init.normal_(parameter)
    inputs, w = torch.randn(3, 4, 5, dtype=torch.float64), Weights(cell)
    outputs, last = scan(cell, inputs, cell.start(*starts))
    for row in range(3):
        state = tuple(start[row].detach().numpy() for start in starts)
        for time in range(4):
            state = NORMED[name](w, inputs[row, time].numpy(), state)
            torch.testing.assert_close(outputs[row, time].detach().numpy(), state[0])
        for part, theirs in zip(last, state, strict=True):
            torch.testing.assert_close(part[row].detach().numpy(), theirs)


@pytest.mark.parametrize("name", GATED)
def test_layer_norm_is_an_option_of_every_gated_cell(name):
    """Recurrent weights a hundred times as large then change nothing, and without it they do."""
    hundredfold = []
    for layer_norm in (True, False):
        cell, starts = make(name, layer_norm=layer_norm)
        inputs = torch.randn(3, 4, 5, dtype=torch.float64)
        before = scan(cell, inputs, cell.start(*starts))[0]
        for key, parameter in cell.named_parameters():
            if key.startswith(("from_hidden", "from_squashed", "from_reset")):
                parameter.data.mul_(100.0)
        after = scan(cell, inputs, cell.start(*starts))[0]
        hundredfold.append(torch.allclose(after, before, rtol=1e-3, atol=1e-3))  # but for the norm's epsilon
    assert hundredfold == [True, False]


@pytest.mark.parametrize("name", TAPES)
def test_cells_with_a_tape_refuse_layer_norm(name):
    with pytest.raises(UserError, match="layer norm"):
        make(name, layer_norm=True)


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("name", TAPES)
def test_the_attention_of_each_position_is_the_equations(name, given):
    cell, starts = make(name)
    inputs = torch.randn(3, 5, 5, dtype=torch.float64)
    expected = run(name, cell, inputs, starts if given else None)
    state = cell.start(*starts) if given else cell.zero_state(inputs)
    for time in range(5):
        state = cell(inputs[:, time], state)
        ours = state.weights.detach().numpy()
        for row in range(3):
            torch.testing.assert_close(ours[row], expected[row][time + 1][2])
        earlier = time + given + (name == "tanh_attention")  # h_t itself is on the SimpleRNN's tape when c_t is summed
        assert ours.shape == (3, earlier)
        if earlier:
            torch.testing.assert_close(ours.sum(-1), np.ones(3))


@pytest.mark.parametrize("name", CELLS)
def test_one_step_of_the_cell_is_one_step_of_the_scan(name):
    cell, starts = make(name, dtype=torch.float32)
    inputs, state = torch.randn(3, 5), cell.start(*starts)
    torch.testing.assert_close(cell(inputs, state).hidden, scan(cell, inputs[:, None], state)[0][:, 0])


@pytest.mark.parametrize("name", CELLS)
def test_the_end_of_a_state_is_what_a_summary_needs(name):
    cell, starts = make(name)
    ends = cell.end(cell.start(*starts))
    assert len(ends) == cell.ends == (2 if name.startswith("lstm") and name not in TAPES else 1)
    for end, expected in zip(ends, (starts[0], starts[-1].tanh()), strict=False):  # a memory has no bound, a summary has
        torch.testing.assert_close(end, expected)


@pytest.mark.parametrize("sizes", [(0, 7), (5, 0), (-1, 7)])
@pytest.mark.parametrize("name", CELLS)
def test_a_size_below_one_is_refused(name, sizes):
    with pytest.raises(UserError, match="at least 1"):
        CELLS[name](*sizes)


def wrong(**changes):
    """The arguments of a scan, one of them wrong."""
    right = {"inputs": torch.zeros(3, 4, 5), "state": None, "lengths": None}
    return right | changes


WRONG = {
    "input size": (wrong(inputs=torch.zeros(3, 4, 6)), r"\[batch, time, 5\], not \[3, 4, 6\]"),
    "no time": (wrong(inputs=torch.zeros(3, 5)), r"\[batch, time, 5\], not \[3, 5\]"),
    "lengths of other rows": (wrong(lengths=torch.tensor([1, 2])), r"one length a row: \[3\], not \[2\]"),
    "lengths of two dimensions": (wrong(lengths=torch.ones(3, 1, dtype=torch.long)), r"\[3\], not \[3, 1\]"),
    "a negative length": (wrong(lengths=torch.tensor([1, -1, 2])), r"between 0 and 4; given: \[1, -1, 2\]"),
    "a length beyond the end": (wrong(lengths=torch.tensor([4, 5, 2])), r"between 0 and 4; given: \[4, 5, 2\]"),
}


class Untouched:
    """Fails when anything is computed."""

    def __init__(self, cell, monkeypatch):
        def fail(*_):
            raise AssertionError("computed before the sizes were checked")

        for method in ("bind", "bind_project", "project", "zero_state"):
            monkeypatch.setattr(cell, method, fail)


@pytest.mark.parametrize("kind", WRONG)
@pytest.mark.parametrize("name", CELLS)
def test_wrong_sizes_are_told_before_anything_is_computed(name, kind, monkeypatch):
    arguments, message = WRONG[kind]
    cell, _ = make(name, dtype=torch.float32)
    Untouched(cell, monkeypatch)
    with pytest.raises(UserError, match=message):
        inspect.unwrap(scan)(cell, **arguments)  # without the tests' own check of shapes


@pytest.mark.parametrize("shape", [(3, 6), (2, 7), (7,)])
@pytest.mark.parametrize("name", CELLS)
def test_a_state_of_the_wrong_size_is_told(name, shape, monkeypatch):
    cell, starts = make(name, dtype=torch.float32)
    for part in range(cell.starts):
        state = cell.start(*starts)
        wrong_state = state._replace(**{state._fields[part]: torch.zeros(shape)})
        Untouched(cell, monkeypatch)
        with pytest.raises(UserError, match="the state before the first step is"):
            inspect.unwrap(scan)(cell, torch.randn(3, 4, 5), wrong_state)


def test_reversal_within_lengths():
    inputs = torch.arange(15.0).view(3, 5, 1)
    lengths = torch.tensor([5, 2, 0])
    turned = reverse_within(inputs, lengths)
    assert turned.flatten().tolist() == [4, 3, 2, 1, 0, 6, 5, 7, 8, 9, 10, 11, 12, 13, 14]
    torch.testing.assert_close(reverse_within(turned, lengths), inputs)
