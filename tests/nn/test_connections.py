"""Layers that attend to the states below, against loops over all pairs of states; steps against the whole."""

import numpy as np
import pytest
import torch
from test_attention import EQUATIONS, LONGEST, QUERY, SIZE, array

from regard.errors import UserError
from regard.nn.attention import SCORES, Attention
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.connections import CONNECTIONS, SelfAttending
from regard.nn.recurrent.layers import RecurrentStack

LENGTHS, TIME = torch.tensor([5, 3, 1]), 5
SEES = {1: lambda t, j: j <= t, -1: lambda t, j: j >= t, 2: lambda t, j: True}  # by the directions of the layer below


def connection(score="additive", directions=1, **options):
    def attention(size, causal):
        return Attention(size, size, score=score, size=SIZE, longest=LONGEST, causal=causal, **options)

    return SelfAttending(3, QUERY, directions=directions, attention=attention).double().eval()


def found_below(one, score, row, directions):
    """[h_t; Σ_j α_tj h_j], α_t = softmax_j e(h_t, h_j) over what the layer below has read by t. The score `location` counts
    from where it begins."""
    results = []
    for t, query in enumerate(row):
        kept = [(state, len(row) - 1 - j if directions == -1 else j) for j, state in enumerate(row) if SEES[directions](t, j)]
        energies = np.array([EQUATIONS[score](one.attention.attention.score, query, state, place, 0) for state, place in kept])
        weights = np.exp(energies - energies.max())
        context = sum(weight * state for weight, (state, _) in zip(weights / weights.sum(), kept, strict=True))
        results.append(np.concatenate([query, context]))
    return np.stack(results)


@pytest.mark.parametrize("directions", SEES)
@pytest.mark.parametrize("score", SCORES)
def test_a_layer_reads_what_its_attention_finds_below(score, directions):
    one, states = connection(score, directions), torch.randn(3, TIME, QUERY).double()
    ours = one(states, states, None, LENGTHS)
    assert one.size == ours.shape[-1] == 2 * QUERY
    for row, length in enumerate(LENGTHS):
        expected = found_below(one, score, array(states[row, :length]), directions)
        np.testing.assert_allclose(array(ours[row, :length]), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(array(one(states, states)[0]), array(ours[0]), rtol=1e-9)  # without lengths all is there


@pytest.mark.parametrize("options", [{}, {"heads": 2, "values": 4}, {"scope": "local_m", "window": 1}, {"scope": "compressed"}])
def test_steps_find_what_the_whole_finds(options):
    one, states = connection(**{"window": 2, **options}), torch.randn(3, TIME, QUERY).double()
    connect, state, found = one.bind_step(), one.start(states), []
    for here in states.unbind(dim=1):
        outputs, state = connect(here, here, None, state)
        found.append(outputs)
    torch.testing.assert_close(torch.stack(found, dim=1), one(states, states))


def attending(directions):
    def attention(size, causal):
        return Attention(size, size, causal=causal)

    connect = CONNECTIONS["self_attention"]
    return RecurrentStack(
        CELLS["gru"], 5, 4, layers=2, directions=directions, connection=connect, connect_top=True, attention=attention
    )


@pytest.mark.parametrize("directions", SEES)
def test_a_stack_attends_as_far_as_its_layers_have_read(directions):
    """The first output changes with the last word where layers read both ways or from the right, and with padding never."""
    stack, words = attending(directions), torch.randn(3, TIME, 5)
    before, changed = stack(words, LENGTHS)[0], words.clone()
    changed[0, -1] += 1.0
    changed[1, 3:] += 1.0
    after = stack(changed, LENGTHS)[0]
    assert torch.equal(after[0, 0], before[0, 0]) == (directions == 1)
    assert not torch.equal(after[0, -1], before[0, -1])
    torch.testing.assert_close(after[1, :3], before[1, :3])


def test_windows_of_a_text_are_refused():
    stack = attending(1)
    _, states = stack(torch.randn(2, 3, 5))
    with pytest.raises(UserError, match="whole texts"):
        stack(torch.randn(2, 3, 5), None, states)


@pytest.mark.parametrize("directions", SEES)
def test_the_weights_are_those_of_what_was_found(directions):
    one, states = connection("general", directions), torch.randn(2, TIME, QUERY).double()
    found = one(states, states)[..., QUERY:]
    torch.testing.assert_close(one.weights(states)[:, 0] @ states, found)
    stack, words = attending(directions), torch.randn(2, TIME, 5)
    (layer, weights), *_ = stack.attention_weights(words[:1])
    below = stack.layers[0](words[:1])[0]
    torch.testing.assert_close(weights, stack.connections[0].weights(below)[0])
    assert layer == 1
    sees = torch.tensor([[SEES[directions](t, j) for j in range(TIME)] for t in range(TIME)])
    assert weights.gt(0).equal(sees.expand_as(weights))
