"""Every path of a scan against the loop, and the laws of scans."""

import inspect
import random
import subprocess
import sys

import odd_cells as odd
import pytest
import torch
from paths import GATED, TAPES, TOLERANCE, TWINS, Trial, far, half_kept, some_lengths

from regard.errors import UserError
from regard.nn.kernels.recurrent.equation import elementwise, known, traceable
from regard.nn.recurrent import diagonal
from regard.nn.recurrent.cells import CELLS, GatedCell, Hidden
from regard.nn.recurrent.gradient_flow import gradient_flow
from regard.nn.recurrent.layers import RecurrentLayer
from regard.nn.recurrent.scan import APPLIES, FASTEST, PATHS, ScanTask, choose_path, scan
from regard.nn.recurrent.tape_scan import equation_for

SHAPES = [(1, 1, 3, 2), (3, 17, 5, 7), (2, 33, 7, 7), (17, 3, 5, 18)]  # batch, time, input, hidden
EAGER = [("library", name) for name in TWINS] + [("diagonal", name) for name in GATED] + [("tape", name) for name in TAPES]
EVERY = [("loop", name) for name in CELLS] + EAGER


def test_every_path_is_compared():
    assert (
        set(PATHS) == set(APPLIES) == {"loop", "traced", "persistent", "persistent_tape", *(path for path, _ in EAGER)}
    )  # traced: test_onnx.py
    assert all(set(order) < set(PATHS) for order in FASTEST.values())


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("path", "name"), EAGER)
def test_a_path_equals_the_loop_in_values_and_gradients(path, name, shape, ragged):
    batch, time, inputs, hidden = shape
    for masked in (False, True) if path == "diagonal" else (False,):
        trial = Trial(CELLS[name](inputs, hidden), batch, time, ragged, masked)
        assert not far(trial.results(path), trial.results("loop"))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("path", "name"), EAGER)
def test_a_path_that_begins_with_nothing_equals_the_loop(path, name, ragged):
    """h_0 = 0, and a tape has no position."""
    trial = Trial(CELLS[name](5, 7), 4, 6, ragged)
    trial.starts = []
    assert not far(trial.results(path), trial.results("loop"))


@pytest.mark.parametrize("shape", [(3, 17, 5, 7), (4, 5, 7, 7)])
@pytest.mark.parametrize("name", GATED)
def test_in_double_precision_the_diagonal_path_is_the_loop(name, shape, monkeypatch):
    """To ten digits, and in stretches of two steps whose partial derivatives are computed at once."""
    batch, time, inputs, hidden = shape
    monkeypatch.setattr(diagonal, "STRETCH", 2 * batch * hidden + 1)
    trial = Trial(CELLS[name](inputs, hidden), batch, time, ragged=True, masked=True, dtype=torch.float64)
    assert not far(trial.results("diagonal"), trial.results("loop"), 1e-10)


@pytest.mark.parametrize(("name", "hidden"), [("lstm", 130), ("lstm_peephole", 130), ("gru_cho", 258), ("mut3", 258)])
def test_products_that_one_dnn_takes_are_the_same(name, hidden):
    """Weights of 2^16 numbers and more are laid out once for all steps."""
    trial = Trial(CELLS[name](5, hidden), 3, 4, ragged=True, masked=True)
    assert not far(trial.results("diagonal"), trial.results("loop"))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_the_path_that_is_chosen_equals_the_loop(name, ragged):
    trial = Trial(CELLS[name](5, 7), 4, 6, ragged)
    assert not far(trial.results(None), trial.results("loop"))


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_mixed_precision_stays_near_single_precision(name, masked, ragged):
    """bfloat16 has 8 bits: 2^-8 = 0.4 % a number, a few times that after six steps, and more where the gradient is a
    difference of near equals, as a softmax's is."""
    tolerance = 4e-2 if name in GATED else 0.15
    trial = Trial(CELLS[name](5, 7), 4, 6, ragged, masked)
    exact = trial.results("loop")
    for path in ("loop", None):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = trial.results(path)
        assert not far(rough, exact, tolerance)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("path", "name"), EVERY)
def test_a_scan_cut_in_two_equals_one(path, name, ragged):
    """Law 5, the state between them and the gradient through the cut included."""
    trial = Trial(CELLS[name](5, 7), 5, 9)
    cell, inputs, start = trial.cell, trial.inputs, trial.cell.start(*trial.starts)
    lengths = some_lengths(5, 9)
    first_lengths, second_lengths = (lengths.clamp(max=4), (lengths - 4).clamp(min=0)) if ragged else (None, None)
    whole, final = scan(cell, inputs, start, lengths if ragged else None, path=path)
    first, state = scan(cell, inputs[:, :4], start, first_lengths, path=path)
    second, last = scan(cell, inputs[:, 4:], state, second_lengths, path=path)
    both = torch.cat([first, second], dim=1)
    torch.testing.assert_close(both, whole)
    for ours, theirs in zip(cell.end(last), cell.end(final), strict=True):
        torch.testing.assert_close(ours, theirs)
    for part in ("context", "visible"):
        if hasattr(last, part):
            torch.testing.assert_close(getattr(last, part), getattr(final, part))
    back, leaves = torch.randn_like(whole), [inputs, *trial.starts]
    ours, theirs = (torch.autograd.grad((one * back).sum(), leaves, retain_graph=True) for one in (both, whole))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("path", "name"), EVERY)
def test_a_row_goes_on_after_a_pause_as_if_there_had_been_none(path, name):
    """Values and gradients: a tape has no position for the steps after a row's end."""
    trial = Trial(CELLS[name](5, 7), 3, 7)
    back, results = torch.randn(3, 2, 7), []
    for length, steps in ((torch.tensor([2, 2, 2]), 5), (None, 2)):
        _, state = scan(trial.cell, trial.inputs[:, :steps], trial.cell.start(*trial.starts), length, path=path)
        outputs, _ = scan(trial.cell, trial.inputs[:, 5:], state, path=path)
        leaves = [trial.inputs, *trial.starts, *trial.cell.parameters()]
        gradients = torch.autograd.grad((outputs * back).sum(), leaves, allow_unused=True, materialize_grads=True)
        results.append(dict(enumerate([outputs, *gradients])))
    assert not far(*results)
    assert results[0][1][:, 2:5].eq(0).all()


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_two_directions_on_the_turned_input_are_the_turned_ones(name, ragged):
    """The layer whose directions have changed places reads a sequence from its end as the layer reads it."""
    layer = RecurrentLayer(CELLS[name], 5, 4, directions=2)
    swapped = RecurrentLayer(CELLS[name], 5, 4, directions=2)
    for ours, theirs in zip(swapped.cells, reversed(list(layer.cells)), strict=True):
        ours.load_state_dict(theirs.state_dict())
    inputs, lengths = torch.randn(5, 6, 5), some_lengths(5, 6) if ragged else torch.full((5,), 6)
    turned = inputs.clone()
    for row, length in enumerate(lengths.tolist()):
        turned[row, :length] = inputs[row, :length].flip(0)
    outputs, states = layer(inputs, lengths if ragged else None)
    others, other_states = swapped(turned, lengths if ragged else None)
    for row, length in enumerate(lengths.tolist()):
        expected = torch.cat(outputs[row, :length].flip(0).split(4, dim=-1)[::-1], dim=-1)
        torch.testing.assert_close(others[row, :length], expected)
    for ours, theirs in zip(other_states, reversed(list(states)), strict=True):
        torch.testing.assert_close(ours.hidden, theirs.hidden)


@pytest.mark.parametrize(("path", "name"), EVERY)
def test_after_its_end_a_row_stands_still(path, name):
    trial = Trial(CELLS[name](5, 7), 5, 8, ragged=True)
    cell, starts, lengths = trial.cell, trial.starts, trial.lengths
    outputs, last = scan(cell, trial.inputs, cell.start(*starts), lengths, path=path)
    for row, length in enumerate(lengths.tolist()):
        alone, end = scan(
            cell, trial.inputs[row : row + 1, :length], cell.start(*(start[row : row + 1] for start in starts)), path="loop"
        )
        torch.testing.assert_close(outputs[row, :length], alone[0])
        for ours, theirs in zip(cell.end(last), cell.end(end), strict=True):
            torch.testing.assert_close(ours[row], theirs[0])
        assert outputs[row, length:].eq(last.hidden[row]).all()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 50.0])
@pytest.mark.parametrize(("path", "name"), EVERY)
def test_what_stands_after_the_end_reaches_nothing(path, name, number):
    """No value and no gradient; and the gradient of what stands there is exactly 0."""
    trial = Trial(CELLS[name](5, 7), 5, 8, ragged=True)
    trial.put_after(0.0)
    before = trial.results(path)
    trial.put_after(number)
    results = trial.results(path)
    assert results["gradient of inputs"][trial.after].eq(0).all()
    assert not far(results, before, 1e-6)


@pytest.mark.parametrize("path", ["loop", "diagonal", None])
@pytest.mark.parametrize("name", CELLS)
def test_no_time_leaves_the_state_as_it_was(name, path):
    if path == "diagonal" and name not in GATED:
        pytest.skip("not a gated cell")
    trial = Trial(CELLS[name](5, 7), 3, 4)
    state = trial.cell.start(*trial.starts)
    for lengths in (None, torch.zeros(3, dtype=torch.long)):
        outputs, final = scan(trial.cell, torch.randn(3, 0, 5), state, lengths, path=path)
        assert outputs.shape == (3, 0, 7)
        for ours, theirs in zip(final, state, strict=True):
            assert ours.equal(theirs)


@pytest.mark.parametrize("name", CELLS)
def test_no_rows_give_no_rows(name):
    cell = CELLS[name](5, 7)
    for lengths in (None, torch.zeros(0, dtype=torch.long)):
        outputs, final = scan(cell, torch.randn(0, 4, 5), None, lengths)
        assert outputs.shape == (0, 4, 7)
        assert final.hidden.shape == (0, 7)


def path_of(name, *, dtype=torch.float32, lengths=None, masked=False, shape=(3, 4), **options):
    cell = CELLS[name](5, 7, **options).to(dtype)
    inputs = torch.randn(*shape, 5, dtype=dtype)
    mask = half_kept(len(inputs), 7) if masked else None
    return choose_path(ScanTask(cell, inputs, cell.zero_state(inputs), lengths, mask))


@pytest.mark.parametrize("name", CELLS)
def test_the_fastest_path_that_applies_is_chosen(name):
    fast = "library" if name in TWINS else "diagonal" if name in GATED else "loop"
    assert path_of(name) == path_of(name, lengths=torch.tensor([4, 0, 1])) == fast
    assert path_of(name, masked=True) == ("diagonal" if name in GATED else "loop")  # a library knows no mask
    assert path_of(name, dtype=torch.float64) == (
        "diagonal" if name in GATED else "loop"
    )  # a gate fixed by a bias of 30 is not 1 to 16 digits
    assert path_of(name, shape=(3, 0)) == path_of(name, shape=(0, 4)) == "loop"
    if name in GATED:
        assert path_of(name, layer_norm=True) == "loop"
    with gradient_flow():
        assert path_of(name) == "loop"


@pytest.mark.parametrize("name", TAPES)
def test_a_tape_whose_loop_would_fill_the_memory_takes_the_path_that_is_linear_in_time(name):
    cell, inputs = CELLS[name](5, 256), torch.zeros(1, 1, 5)
    for batch, time, path in ((32, 64, "loop"), (32, 256, "tape")):
        wide = inputs.expand(batch, time, 5)
        assert choose_path(ScanTask(cell, wide, cell.zero_state(wide), None, None)) == path


@pytest.mark.parametrize("name", ["lstm_f", "lstm_i", "lstm_o"])
def test_a_gate_fixed_by_a_bias_is_one_to_the_last_bit(name):
    cell = CELLS[name](5, 7)
    gate = cell.weights[2][cell.fixed * 7 : (cell.fixed + 1) * 7] + cell.weights[3][cell.fixed * 7 : (cell.fixed + 1) * 7]
    assert torch.sigmoid(gate).eq(1).all()
    assert all(weight[cell.fixed * 7 : (cell.fixed + 1) * 7].eq(0).all() for weight in cell.weights[:2])


class OneProduct(GatedCell):
    """A user's own: h = h ∗ max(0, p_2) - 3 σ(p_1) tanh(h) + 0.5, one product."""

    terms = ("xh", "xh")

    def update(self, pre, state):
        first, second = pre
        return Hidden(state.hidden * torch.relu(second) - 3 * torch.sigmoid(first) * torch.tanh(state.hidden) + 0.5)


class TwoProducts(GatedCell):
    """A user's own: the reset is 1 - tanh(p_1) h, four sums of all kinds."""

    terms = ("xh", "t", "x", "xm")

    def reset(self, pre, state):
        return 1.0 - torch.tanh(pre[0]) * state.hidden

    def update(self, pre, state):
        first, squashed, plain, candidate = pre
        return Hidden(torch.tanh(candidate * squashed - plain) + 0.3 * state.hidden * torch.sigmoid(first))


def chosen_for(trial):
    return choose_path(ScanTask(trial.cell, trial.inputs, trial.cell.start(*trial.starts), trial.lengths, trial.mask))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", [OneProduct, TwoProducts, *odd.ODD])
def test_a_users_own_cell_is_right_on_the_path_that_is_chosen(kind, masked):
    """The diagonal path where it is elementwise in its own arguments, so that every parameter learns; else the loop."""
    trial = Trial(kind(5, 7), 4, 6, ragged=True, masked=masked)
    assert chosen_for(trial) == ("loop" if kind in odd.NOT_TRACED else "diagonal")
    assert not far(trial.results(None), trial.results("loop"))


def test_the_tracer_takes_what_it_can_differentiate_and_the_kernels_have_room_for():
    cells = [CELLS[name](5, 7) for name in GATED] + [kind(5, 7) for kind in (OneProduct, TwoProducts, *odd.ODD)]
    refused = (*odd.NOT_CARRIED, *odd.NOT_TRACED)
    assert [type(cell) for cell in cells if not traceable(cell)] == [*refused]
    assert [type(cell) for cell in cells if not elementwise(cell)] == [*odd.NOT_TRACED]
    assert not traceable(CELLS["lstm"](5, 7, layer_norm=True))


def test_an_equation_belongs_to_its_cell_and_not_to_its_class():
    first, second = odd.Leaky(5, 7), odd.Leaky(5, 7)
    second.leak = 0.25
    texts = [known(cell)[1] for cell in (first, second, first)]
    assert texts[0] == texts[2] != texts[1]
    assert "0.25" in texts[1]


def saved_bytes(path, name, time):
    """Of all tensors that autograd keeps from one scan, each counted once."""
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = (tensor.untyped_storage().nbytes(), tensor)
        return tensor

    trial = Trial(CELLS[name](5, 7), 4, time)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        results = scan(trial.cell, trial.inputs, trial.cell.start(*trial.starts), path=path)
    assert results[0].requires_grad
    return sum(size for size, _ in kept.values())


@pytest.mark.parametrize("name", GATED)
def test_what_the_diagonal_path_keeps_is_linear_in_time(name):
    """The pre-activations, the states and the inputs of each step, and nothing else that grows."""
    sizes = [saved_bytes("diagonal", name, time) for time in (8, 16, 24)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]
    cell = CELLS[name]
    a_step = 4 * 4 * (len(cell.terms) * 7 + len(cell.State._fields) * 7 + 5)
    extra = 4 * 4 * 7 if name == "mut1" else 0  # tanh(x)
    assert sizes[1] - sizes[0] <= 8 * (a_step + extra)


def test_a_mask_of_the_wrong_size_is_told():
    """A kernel would read beyond it."""
    for shape in ((1, 7), (3, 6), (7,)):
        with pytest.raises(UserError, match="mask"):
            inspect.unwrap(scan)(CELLS["mut1"](5, 7), torch.randn(3, 4, 5), mask=torch.ones(shape))


REFUSED = [
    ("library", "lstm"), ("library", "mut1"), ("diagonal", "lstm_tape"), ("tape", "lstm"), ("tape", "lstm_tape"),
    ("persistent", "lstm"), ("persistent_tape", "lstm_tape"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "name"), REFUSED)
def test_a_path_that_does_not_compute_this_is_refused(path, name):
    """By default it is never chosen; asked for, it would leave out the mask without a word, or fail somewhere within."""
    with pytest.raises(UserError, match=f"the path '{path}' does not compute this scan of"):
        scan(CELLS[name](5, 7), torch.randn(3, 4, 5), mask=half_kept(3, 7), path=path)


class Whole(CELLS["gru"]):
    """A cell with a way of its own through all steps."""

    def run(self, projected, state, active):
        return projected.new_ones(*projected.shape[:2], self.hidden_size), state


def test_a_cells_own_way_is_taken_where_it_computes_all():
    """It knows no mask, and tells nobody of its states."""
    cell, inputs, ones = Whole(5, 7), torch.randn(3, 4, 5), torch.ones(3, 4, 7)
    assert scan(cell, inputs, path="loop")[0].equal(ones)
    assert scan(cell, inputs[:, :0], path="loop")[0].shape == (3, 0, 7)
    assert not scan(cell, inputs, mask=half_kept(3, 7), path="loop")[0].equal(ones)
    with gradient_flow():
        assert not scan(cell, inputs, path="loop")[0].equal(ones)


@pytest.mark.parametrize("path", ["library", "diagonal"])
def test_a_path_that_knows_no_layer_norm_is_refused(path):
    with pytest.raises(UserError, match=path):
        scan(CELLS["lstm"](5, 7, layer_norm=True), torch.randn(3, 4, 5), path=path)


@pytest.mark.parametrize("name", TAPES)
def test_a_scan_takes_no_random_number(name):
    cell, inputs = CELLS[name](5, 7), torch.randn(3, 4, 5)
    equation_for.cache_clear()
    before = torch.get_rng_state()
    scan(cell, inputs, path="tape")
    assert torch.get_rng_state().equal(before)


def test_importing_the_scans_takes_no_random_number():
    """It may happen anywhere in a run."""
    program = (
        "import torch; state = torch.get_rng_state(); import regard.nn.recurrent.scan\n"
        "assert torch.get_rng_state().equal(state)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", TAPES)
def test_what_the_tape_path_keeps_is_linear_in_time(name):
    sizes = [saved_bytes("tape", name, time) for time in (8, 16, 24)]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0]
    assert saved_bytes("loop", name, 24) > 2 * sizes[2]


# What follows needs a GPU: several programs share the rows of a group and meet at every step. Each (cell, hidden size, kind of
# number, ragged or not) is compiled anew, which takes seconds: so all cells at one size, and the odd sizes for a few.

SOME = ["lstm", "lstm_peephole", "mut3"]  # biases and a memory; vectors; two products and tanh(h)
LARGE = [(64, 33, 512, 512), (130, 5, 200, 200), (9, 6, 30, 1100)]  # with 1100 units weights do not stay
PLAIN = [("lstm", (33, 9, 48, 300)), ("mut3", (33, 9, 48, 300)), ("lstm_peephole", (1, 1, 24, 200)), ("mut3", (1, 1, 24, 200))]
MIXED = [(name, LARGE[0], torch.bfloat16) for name in SOME] + [
    ("lstm", LARGE[2], torch.bfloat16),
    ("lstm", LARGE[0], torch.float16),
]
TAPED = [("lstm_tape", shape) for shape in ((20, 17, 48, 96), (64, 33, 512, 512), (300, 4, 40, 512))]


@pytest.mark.gpu
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("path", "name"), EAGER)
def test_a_path_equals_the_loop_on_a_gpu(path, name, ragged):
    """But a library would have to wait for the lengths to tell the memory at a row's end."""
    trial = Trial(CELLS[name](5, 18), 4, 9, ragged, masked=path == "diagonal", device="cuda")
    if path == "library" and ragged and trial.cell.starts > 1:
        with pytest.raises(UserError, match="library"):
            trial.scan(path)
        return
    assert not far(trial.results(path), trial.results("loop"))


@pytest.mark.gpu
@pytest.mark.parametrize("name", CELLS)
def test_the_path_that_is_chosen_on_a_gpu(name):
    """In float32 a library's, if it need not wait for the lengths; in bfloat16 always a kernel of ours; never the loop."""
    kernel = "persistent" if name in GATED else "persistent_tape"
    for ragged in (False, True):
        trial = Trial(CELLS[name](5, 18), 4, 9, ragged, device="cuda")
        waits = ragged and trial.cell.starts > 1
        assert chosen_for(trial) == ("library" if name in TWINS and not waits else kernel)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert chosen_for(trial) == kernel
    assert chosen_for(Trial(CELLS[name](5, 18), 4, 9, dtype=torch.float64, device="cuda")) in ("diagonal", "loop")


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "shape"), [(name, (20, 17, 48, 96)) for name in GATED] + [(name, shape) for name in SOME for shape in LARGE]
)
def test_the_persistent_path_equals_the_loop_on_a_gpu(name, shape):
    batch, time, inputs, hidden = shape
    trial = Trial(CELLS[name](inputs, hidden), batch, time, ragged=True, masked=True, device="cuda")
    assert not far(trial.results("persistent"), trial.results("loop"))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "shape"), PLAIN)
def test_the_persistent_path_without_lengths_and_mask_equals_the_loop_on_a_gpu(name, shape):
    batch, time, inputs, hidden = shape
    trial = Trial(CELLS[name](inputs, hidden), batch, time, device="cuda")
    assert not far(trial.results("persistent"), trial.results("loop"))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "shape"), [*TAPED, ("tanh_attention", (64, 33, 512, 512))])
def test_the_persistent_tape_equals_the_loop_on_a_gpu(name, shape):
    batch, time, inputs, hidden = shape
    for ragged in (False, True):
        trial = Trial(CELLS[name](inputs, hidden), batch, time, ragged, device="cuda")
        assert not far(trial.results("persistent_tape"), trial.results("loop"))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "shape", "dtype"), MIXED)
def test_the_persistent_path_in_half_precision_stays_near_the_loop(name, shape, dtype):
    """bfloat16 has 8 bits (0.4 % a number), and 33 steps add up."""
    batch, time, inputs, hidden = shape
    trial = Trial(CELLS[name](inputs, hidden), batch, time, ragged=True, masked=True, device="cuda")
    exact = trial.results("loop")
    with torch.autocast("cuda", dtype=dtype):
        rough = trial.results("persistent")
    assert not far(rough, exact, 3e-2)


@pytest.mark.gpu
def test_the_persistent_tape_in_half_precision_stays_near_the_loop():
    trial = Trial(CELLS["lstm_tape"](512, 512), 64, 33, ragged=True, device="cuda")
    exact = trial.results("loop")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        rough = trial.results("persistent_tape")
    assert not far(rough, exact, 0.15)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [OneProduct, TwoProducts])
def test_a_users_own_cell_takes_the_persistent_path_rightly(kind):
    trial = Trial(kind(48, 300), 33, 9, ragged=True, masked=True, device="cuda")
    assert chosen_for(trial) == "persistent"
    assert not far(trial.results(None), trial.results("loop"))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [*odd.NOT_CARRIED, *odd.NOT_TRACED])
def test_a_cell_that_no_kernel_carries_falls_back_on_a_gpu(kind):
    trial = Trial(kind(5, 18), 4, 9, ragged=True, device="cuda")
    assert chosen_for(trial) == ("diagonal" if kind in odd.NOT_CARRIED else "loop")
    assert not far(trial.results(None), trial.results("loop"))
    with pytest.raises(UserError, match="persistent"):
        trial.scan("persistent")


@pytest.mark.gpu
@pytest.mark.parametrize("name", SOME)
def test_two_runs_of_the_persistent_path_are_the_same_to_the_last_bit(name):
    trial = Trial(CELLS[name](512, 512), 64, 33, ragged=True, masked=True, device="cuda")
    first, second = trial.results("persistent"), trial.results("persistent")
    assert [what for what in first if not first[what].equal(second[what])] == []


@pytest.mark.gpu
def test_many_launches_of_all_sizes_meet_rightly():
    """Programs that miss one another give another number than the diagonal path, or none at all."""
    choice = random.Random(1)
    cells = [CELLS["gru_cho"](24, hidden) for hidden in (200, 700)]
    for _ in range(50):
        batch, time = choice.choice([5, 33, 130, 199]), choice.choice([2, 9, 21, 39])
        trial = Trial(choice.choice(cells), batch, time, ragged=True, device="cuda")
        assert not far(trial.results("persistent"), trial.results("diagonal"), 10 * TOLERANCE)


@pytest.mark.gpu
def test_a_length_beyond_the_end_is_told_on_a_gpu_too():
    """A failed assertion leaves a device unusable, so it happens in a process of its own."""
    program = (
        "import torch; from regard.nn.recurrent.cells import CELLS; from regard.nn.recurrent.scan import scan\n"
        "scan(CELLS['gru'](5, 7).cuda(), torch.randn(2, 4, 5).cuda(), None, torch.tensor([5, 1]).cuda())\n"
        "torch.cuda.synchronize()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "assert" in done.stderr.lower()
