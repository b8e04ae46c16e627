"""Words that enter a stack, and the gradient of their table: against float64 and torch's own embedding."""

import pytest
import torch
from test_layer_kernels import distance
from torch.nn import functional

from regard.nn.kernels.layers import words
from regard.nn.kernels.random import Seed

NEAR = {torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}
PATTERNS = {
    "one word": [7] * 200,
    "all different": list(range(200)),
    "runs that end with a block": [1] * 32 + [2] * 32 + [3] * 5,
    "runs over many blocks": [4] * 40 + [5] * 700 + [6] * 3 + [8] * 64,
    "more blocks than are joined at once": [2] + [9] * (32 * 40),
    "one": [3],
    "nothing": [],
}


def entered_and_exact(rate, shape=(3, 5, 20), rows=1, kind=torch.float32, device="cpu"):
    """Result and gradient, ours and in float64. What stays is read off from ones."""
    states, places = torch.randn(shape).to(device, kind), torch.randn(rows, *shape[1:]).to(device)
    slope, seed = torch.randn(shape).to(device, kind), Seed(torch.tensor([98765432109], device=device), 2)
    mask = words.entered(torch.ones(shape, device=device), None, scale=1.0, rate=rate, seed=seed).cpu().double()
    leaf = states.clone().requires_grad_()
    ours = words.entered(leaf, places, scale=3.0, rate=rate, seed=seed)
    exact = (states.cpu().double() * 3.0 + places.cpu().double()) * mask
    found = [ours, *torch.autograd.grad(ours, leaf, slope)]
    return found, [exact, slope.cpu().double() * mask * 3.0], mask


def table_and_exact(pattern, size=20, length=1300, kind=torch.float32, device="cpu"):
    """The gradient of a table whose words were looked up in any order; ours, and torch's in float64."""
    tokens = torch.tensor(pattern, dtype=torch.long)[torch.randperm(len(pattern))]
    table, slope = torch.randn(length, size).to(device, kind).requires_grad_(), torch.randn(len(tokens), size).to(device, kind)
    ours = words.lookup(table, tokens.to(device))
    exact = table.detach().cpu().double().requires_grad_()
    theirs = functional.embedding(tokens, exact)
    (gradient,) = torch.autograd.grad(theirs, exact, slope.cpu().double())
    return [ours, *torch.autograd.grad(ours, table, slope)], [theirs, gradient]


def check_entered(rate, kind=torch.float32, device="cpu", **options):
    ours, exact, mask = entered_and_exact(rate, kind=kind, device=device, **options)
    assert distance(ours, exact) < NEAR[kind]
    kept = mask != 0
    assert abs(kept.double().mean() - (1 - rate)) < 0.2
    torch.testing.assert_close(mask[kept], torch.full_like(mask[kept], 1 / (1 - rate)), rtol=1e-3, atol=0)


def test_without_a_gpu_words_enter_the_plain_way():
    states, places = torch.randn(2, 3, 4), torch.randn(1, 3, 4)
    torch.testing.assert_close(words.entered(states, places, scale=2.0), states * 2 + places)
    assert words.entered(states, None, scale=1.0, rate=0.5).eq(0).any()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", NEAR)
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_words_enter_on_a_gpu(rate, kind):
    check_entered(rate, kind, "cuda", shape=(33, 31, 512))
    check_entered(rate, kind, "cuda", shape=(3, 31, 300), rows=3)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", NEAR)
@pytest.mark.parametrize("name", PATTERNS)
def test_the_gradient_of_a_table_on_a_gpu(name, kind):
    assert distance(*table_and_exact(PATTERNS[name], 512, kind=kind, device="cuda")) < NEAR[kind]


@pytest.mark.gpu
def test_the_gradient_of_a_table_has_the_same_bits_every_time():
    table = torch.randn(1000, 512, device="cuda", requires_grad=True)
    tokens, slope = torch.randint(0, 100, (64, 50), device="cuda"), torch.randn(64, 50, 512, device="cuda")
    first, *others = (torch.autograd.grad(words.lookup(table, tokens), table, slope)[0] for _ in range(3))
    assert all(torch.equal(first, other) for other in others)
