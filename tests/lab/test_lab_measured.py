"""Experiments without training: gradients through time, positions, complexity."""

import json
import math

import numpy as np
import pytest
import torch
from calling import refused, regard

from regard.lab.complexity import CASES, exponent
from regard.lab.gradients import Reader, flow, reach
from regard.lab.positions import alike, shift
from regard.nn.positions import POSITIONS
from regard.nn.recurrent.cell import GatedCell, Hidden
from regard.nn.recurrent.cells import CELLS

SIZE, STEPS, ROWS = 4, 7, 3


class Linear(GatedCell):
    """h = W x + U h + b"""

    terms = ("xh",)

    def update(self, pre, state):
        return Hidden(pre[0])


@pytest.fixture
def asked():
    return torch.randn(ROWS, STEPS, SIZE), torch.randint(SIZE, (ROWS,))


def unrolled(cell, reader, inputs, answers):
    """|dL/dh_t| by autograd over a loop that is written out."""
    state, step, states = cell.zero_state(inputs), cell.bind(), []
    for time in range(inputs.shape[1]):
        state = step(cell.project(inputs[:, time]), state)
        state.hidden.retain_grad()
        states.append(state.hidden)
    hidden = torch.stack(states, dim=1)
    last = hidden[:, -1]
    if reader.attention is not None:
        score, parts = reader.attention.score, dict(reader.attention.score.named_parameters())
        assert parts
        keys = score.prepare(hidden)
        context = torch.stack([one(reader.attention, hidden, keys, row) for row in range(len(hidden))])
        last = torch.cat([last, context], dim=-1)
    chances = reader.output(last).log_softmax(dim=-1)
    (-chances[torch.arange(len(answers)), answers].mean()).backward()
    return [float(state.grad.norm(dim=-1).mean()) for state in states]


def one(attention, hidden, keys, row):
    """Σ_t α_t h_t for the row's last state, by the step that decoders use."""
    prepared = attention.prepare(hidden[row : row + 1])
    return attention.bind(prepared)(hidden[row : row + 1, -1], attention.start(prepared)).context[0]


@pytest.mark.parametrize("attends", [False, True])
@pytest.mark.parametrize("name", ["tanh", "lstm", "gru", "lstm_tape"])
def test_gradients_are_those_of_an_unrolled_loop(name, attends, asked):
    cell, reader = CELLS[name](SIZE, SIZE), Reader(SIZE, attends)
    found = flow(cell, reader, *asked)
    assert found == pytest.approx(unrolled(cell, reader, *asked), rel=1e-4)


def test_a_linear_cell_has_powers_of_its_matrix(asked):
    inputs, answers = asked
    cell, reader = Linear(SIZE, SIZE), Reader(SIZE, attends=False)
    found = flow(cell, reader, inputs, answers)
    matrix = cell.from_hidden.weight.detach().double().numpy()
    state = np.zeros((ROWS, SIZE))
    for time in range(STEPS):
        state = cell.project(inputs[:, time]).detach().double().numpy() + state @ matrix.T
    logits = state @ reader.output.weight.detach().double().numpy().T + reader.output.bias.detach().double().numpy()
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    error = (chances - np.eye(SIZE)[answers.numpy()]) / ROWS @ reader.output.weight.detach().double().numpy()
    powers = [error @ np.linalg.matrix_power(matrix, STEPS - 1 - time) for time in range(STEPS)]
    assert found == pytest.approx([float(np.linalg.norm(one, axis=1).mean()) for one in powers], rel=1e-4)


def test_how_far_a_gradient_reaches():
    assert reach([1e-9, 1e-3, 0.05, 0.5, 1.0]) == 2
    assert reach([1.0, 1.0]) == 1


def test_sinusoids_look_alike_by_their_distance():
    """p_t · p_s / d = 2/d Σ_i cos((t - s) / 10000^(2i/d))."""
    size, places = 16, 20
    expected = [
        [2 / size * sum(math.cos((t - s) / 10000 ** (2 * i / size)) for i in range(size // 2)) for s in range(places)]
        for t in range(places)
    ]
    np.testing.assert_allclose(alike(POSITIONS["sinusoid"](size), places), expected, atol=1e-6)
    np.testing.assert_allclose(alike(POSITIONS["rotary"](size), places), expected, atol=1e-6)


@pytest.mark.parametrize("name", POSITIONS)
def test_relative_kinds_know_distances_alone(name):
    kind = POSITIONS[name](8, 1, longest=12, distance=4)
    moved = shift(alike(kind, 12))
    assert (moved < 1e-6) == (name not in ("learned", "index"))


def test_exponents_are_those_of_powers():
    lengths = [16, 32, 64]
    assert exponent(lengths, [3 * length**2 for length in lengths]) == pytest.approx(2)
    assert exponent(lengths, [0.5 * length for length in lengths]) == pytest.approx(1)


@pytest.mark.parametrize("name", CASES)
def test_what_is_kept_grows_as_expected(name):
    """Memory is counted, not timed: the same on every machine."""
    from regard.lab.pace import kept

    lengths = [128, 256, 512]
    found = exponent(lengths, [kept(CASES[name].make(8, (length, length))) for length in lengths])
    assert found == pytest.approx(CASES[name].memory, abs=0.15)


@pytest.mark.parametrize("name", ["gradients", "positions", "complexity"])
def test_from_the_command_line(name, tmp_path):
    some = {"gradients": "tanh,lstm_b", "positions": "sinusoid,index", "complexity": "recurrent,attention"}[name]
    words = ["lab", name, "--setting", "smoke", "--names", some, "--out", tmp_path / "out", "--quiet"]
    code, out, err = regard(*words)
    assert (code, err) == (0, "")
    assert "not judged here: the lecture" in out
    assert (tmp_path / "out" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert len(json.loads((tmp_path / "out" / "results.json").read_text())["rows"]) == 2
    assert "was begun with" in refused("lab", name, "--quick", "--out", tmp_path / "out")
