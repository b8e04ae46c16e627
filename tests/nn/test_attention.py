"""Every score against its equation in NumPy; weights are a distribution over what is visible."""

import numpy as np
import pytest
import torch

from regard.nn.attention import SCORES, attend, mix
from regard.nn.attention.additive import additive, bind_additive

SIZE = 6


def array(tensor):
    return tensor.detach().double().numpy()


ORACLES = {
    "dot": lambda score, q, k: q @ k,
    "scaled": lambda score, q, k: q @ k / np.sqrt(SIZE),
    "general": lambda score, q, k: q @ array(score.project_key.weight) @ k,
    "additive": lambda score, q, k: (
        array(score.energy) @ np.tanh(array(score.project_query.weight) @ q + array(score.project_key.weight) @ k)
    ),
}


def test_every_score_has_an_oracle():
    assert ORACLES.keys() == SCORES.keys()


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize(("target", "source"), [(1, 1), (3, 5), (17, 2)])
def test_scores_follow_their_equation(name, target, source):
    score = SCORES[name](SIZE, SIZE).double()
    query, memory = torch.randn(2, target, SIZE).double(), torch.randn(2, source, SIZE).double()
    ours = array(score(query, score.prepare(memory)))
    for batch in range(2):
        for i in range(target):
            for j in range(source):
                expected = ORACLES[name](score, array(query[batch, i]), array(memory[batch, j]))
                np.testing.assert_allclose(ours[batch, i, j], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_gradcheck(name):
    score = SCORES[name](3, 3).double()
    query, memory = (torch.randn(2, n, 3, dtype=torch.float64, requires_grad=True) for n in (2, 4))
    visible = torch.tensor([[[True] * 4], [[True, True, False, False]]])

    def run(query, memory, *_):
        return attend(score(query, score.prepare(memory)), memory, visible)

    assert torch.autograd.gradcheck(run, (query, memory, *score.parameters()))


@pytest.mark.parametrize("name", SCORES)
def test_weights_are_a_distribution_over_the_visible_keys(name):
    score = SCORES[name](SIZE, SIZE)
    memory, query = torch.randn(3, 5, SIZE), torch.randn(3, 4, SIZE) * 50
    visible = torch.tensor([[[True] * 5], [[True] * 3 + [False] * 2], [[False] * 4 + [True]]])
    context, weights = attend(score(query, score.prepare(memory)), memory, visible)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4))
    assert weights.masked_select(~visible.expand_as(weights)).eq(0).all()
    assert weights.ge(0).all()
    torch.testing.assert_close(context[2], memory[2, 4].expand(4, SIZE))


@pytest.mark.parametrize("name", SCORES)
def test_what_is_hidden_is_never_read(name):
    score = SCORES[name](SIZE, SIZE)
    memory, query = torch.randn(1, 5, SIZE), torch.randn(1, 3, SIZE)
    visible = torch.tensor([[[True] * 3 + [False] * 2]])
    noisy = memory.clone()
    noisy[:, 3:] += 1.0
    clean, _ = attend(score(query, score.prepare(memory)), memory, visible)
    dirty, _ = attend(score(query, score.prepare(noisy)), noisy, visible)
    torch.testing.assert_close(clean, dirty, rtol=0, atol=0)


def test_nothing_visible_gives_nothing_and_no_gradient():
    scores = torch.randn(1, 2, 3, requires_grad=True)
    context, weights = attend(scores, torch.randn(1, 3, 4), torch.zeros(1, 1, 3, dtype=torch.bool))
    assert weights.eq(0).all()
    assert context.eq(0).all()
    context.sum().backward()
    assert scores.grad.eq(0).all()


@pytest.mark.parametrize("name", ["dot", "scaled"])
def test_dot_products_of_different_sizes_are_refused(name):
    with pytest.raises(ValueError, match="one size, not 6 and 8"):
        SCORES[name](6, 8)


@pytest.mark.parametrize(("batch", "target", "source"), [(1, 1, 1), (2, 3, 17), (3, 33, 2)])
def test_additive_without_a_tanh_equals_additive(batch, target, source):
    query, keys, energy = (
        torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((batch, target, 5), (batch, source, 5), (5,))
    )
    noise = torch.randn(batch, target, source, dtype=torch.float64)
    plain, ours = additive(query, keys, energy), bind_additive(keys, energy)(query)
    torch.testing.assert_close(ours, plain)
    for one, other in zip(
        *(torch.autograd.grad((way * noise).sum(), [query, keys, energy]) for way in (ours, plain)), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_additive_used_at_many_steps_adds_its_gradients_up():
    keys, energy = torch.randn(2, 4, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    queries = [torch.randn(2, 1, 5, requires_grad=True) for _ in range(6)]
    bound = bind_additive(keys, energy)
    ours = torch.cat([bound(query).tanh() for query in queries], dim=1)
    plain = torch.cat([additive(query, keys, energy).tanh() for query in queries], dim=1)
    for one, other in zip(
        *(torch.autograd.grad(way.square().sum(), [keys, energy, *queries]) for way in (ours, plain)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_additive_gradcheck():
    arguments = [torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((2, 2, 3), (2, 4, 3), (3,))]
    assert torch.autograd.gradcheck(lambda query, keys, energy: bind_additive(keys, energy)(query), arguments)


def test_additive_is_finite_and_right_far_out():
    query, keys, energy = torch.tensor([[[-300.0, 300.0, 15.0]]]), torch.tensor([[[300.0, 300.0, -15.5]]]), torch.ones(3)
    query.requires_grad_()
    scores = bind_additive(keys, energy)(query)
    scores.sum().backward()
    torch.testing.assert_close(scores, additive(query, keys, energy), rtol=1e-5, atol=1e-5)
    assert query.grad.isfinite().all()


def test_additive_saves_nothing_of_target_times_source_times_size():
    query, keys, energy = torch.randn(2, 7, 5, requires_grad=True), torch.randn(2, 9, 5, requires_grad=True), torch.randn(5)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor):
        bind_additive(keys, energy)(query)
    assert max(sizes) < 2 * 7 * 9 * 5


def test_values_read_at_many_steps_add_their_gradients_up():
    values = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    steps = [torch.rand(2, n, 4, dtype=torch.float64, requires_grad=True) for n in (1, 1, 2)]
    read = mix(values)
    ours, plain = (torch.cat([way(step).tanh() for step in steps], dim=1) for way in (read, lambda step: step @ values))
    for one, other in zip(*(torch.autograd.grad(way.square().sum(), [values, *steps]) for way in (ours, plain)), strict=True):
        torch.testing.assert_close(one, other)
