import pytest
import torch

from regard.nn.attention import SCORES, attend, mix
from regard.nn.attention.additive import bind_additive
from regard.nn.shared import Linear, shared


@pytest.mark.parametrize("learning", [True, False])
def test_weights_of_another_precision_read_the_values_in_theirs(learning):
    """Under autocast scores are bfloat16 products and their softmax is float32; the context has the values' type."""
    values = torch.randn(2, 4, 3, dtype=torch.bfloat16, requires_grad=learning)
    weights = torch.rand(2, 1, 4)
    context = mix(values)(weights)
    assert context.dtype == torch.bfloat16
    torch.testing.assert_close(context, weights.bfloat16() @ values)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", SCORES)
def test_autocast_attends_nearly_as_float32_does(name, inside):
    """Going backward inside the autocast block, or after it as PyTorch advises."""
    score, memory, query = SCORES[name](6, 6), torch.randn(2, 5, 6, requires_grad=True), torch.randn(2, 3, 6)
    visible = torch.ones(2, 1, 5, dtype=torch.bool)
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            context, weights = attend(score(query, score.prepare(memory)), memory, visible)
            total = (context.float() * query).sum()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled and inside):
            results.append([context.float(), weights.float(), torch.autograd.grad(total, memory)[0].float()])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.05)  # bfloat16 has 8 bits


def ways():
    """Each map whose weight's gradient is taken once a pass: (its output, what is asked for first, what is learned)."""
    linear, inputs = torch.nn.Linear(4, 4), torch.randn(3, 4, requires_grad=True)
    yield "shared", lambda: shared(linear)(inputs).square().sum(), inputs, linear.weight
    values, weights = torch.randn(2, 4, 3, requires_grad=True), torch.rand(2, 1, 4, requires_grad=True)
    yield "mix", lambda: mix(values)(weights).square().sum(), weights, values
    keys, query = torch.randn(2, 4, 3, requires_grad=True), torch.randn(2, 1, 3, requires_grad=True)
    yield "additive", lambda: bind_additive(keys, torch.ones(3))(query).square().sum(), query, keys


@pytest.mark.parametrize("way", list(ways()), ids=lambda way: way[0])
def test_a_gradient_of_the_inputs_alone_leaves_nothing_behind(way):
    _, run, first, learned = way
    total = run()
    torch.autograd.grad(total, first, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(total, learned), torch.autograd.grad(run(), learned))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [300])
def test_a_frozen_layer_passes_gradients_on(size):
    layer, inputs = Linear(size, size).requires_grad_(False), torch.randn(2, size, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(layer(inputs).sum(), inputs)[0], layer.weight.sum(0).expand(2, size))
