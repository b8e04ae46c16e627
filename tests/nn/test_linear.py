"""The product whose weight gradient is taken once must be the product."""

import pytest
import torch
from torch import nn

from regard.nn.linear import ONE_DNN, Linear, bind_linear, linear, matmul, one_dnn_applies


def loop(matmul, state, steps=5):
    outputs = []
    for _ in range(steps):
        state = torch.tanh(matmul(state))
        outputs.append(state)
    return torch.stack(outputs)


@pytest.mark.parametrize("bias", [True, False])
def test_a_loop_has_the_gradients_of_the_plain_loop(bias):
    linear, start = nn.Linear(4, 4, bias=bias).double(), torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    leaves = [start, *linear.parameters()]
    weights = torch.randn(5, 3, 4, dtype=torch.float64)
    plain = torch.autograd.grad((loop(linear, start) * weights).sum(), leaves)
    tied = torch.autograd.grad((loop(bind_linear(linear), start) * weights).sum(), leaves)
    for ours, theirs in zip(tied, plain, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_gradcheck():
    linear = nn.Linear(3, 3).double()

    def run(weight, bias, start):
        linear.weight.data, linear.bias.data = weight.data, bias.data
        return torch.func.functional_call(Loop(linear), {"linear.weight": weight, "linear.bias": bias}, (start,))

    arguments = [torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in ((3, 3), (3,), (2, 3))]
    assert torch.autograd.gradcheck(run, arguments)


class Loop(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, start):
        return loop(bind_linear(self.linear), start, steps=3)


def test_a_second_backward_through_the_same_graph_counts_each_use_once():
    linear, start = nn.Linear(4, 4), torch.randn(3, 4)
    total = loop(bind_linear(linear), start).sum()
    first = torch.autograd.grad(total, linear.weight, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(total, linear.weight)[0], first)


def test_a_use_that_gets_no_gradient_is_left_out():
    linear, start = nn.Linear(4, 4), torch.randn(3, 4)
    matmul = bind_linear(linear)
    used, _unused = matmul(start).sum(), matmul(start + 1)
    torch.testing.assert_close(
        torch.autograd.grad(used, linear.weight)[0], torch.autograd.grad(linear(start).sum(), linear.weight)[0]
    )


def test_three_dimensional_inputs():
    linear, inputs = nn.Linear(4, 5), torch.randn(2, 3, 4)
    torch.testing.assert_close(
        torch.autograd.grad(bind_linear(linear)(inputs).square().sum(), linear.weight),
        torch.autograd.grad(linear(inputs).square().sum(), linear.weight),
    )


def test_autocast_gives_bfloat16_products_and_float32_gradients():
    linear, start = nn.Linear(4, 4), torch.randn(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = bind_linear(linear)(start)
    assert outputs.dtype == torch.bfloat16
    gradient = torch.autograd.grad(outputs.float().sum(), linear.weight)[0]
    assert gradient.dtype == torch.float32
    torch.testing.assert_close(gradient, start.sum(0).expand(4, 4), rtol=0.02, atol=0.02)  # bfloat16 has 8 bits


def test_without_gradients_it_is_the_layer():
    linear, inputs = nn.Linear(4, 5), torch.randn(2, 3, 4)
    with torch.no_grad():
        torch.testing.assert_close(bind_linear(linear)(inputs), linear(inputs))


@pytest.mark.parametrize("rows", [(1,), (33,), (3, 17), (0,)])
@pytest.mark.parametrize("bias", [True, False])
def test_the_library_that_multiplies_changes_no_value_and_no_gradient(rows, bias, monkeypatch):
    layer, inputs = Linear(300, 260, bias=bias), torch.randn(*rows, 300, requires_grad=True)
    assert one_dnn_applies(torch.randn(2, 300), layer.weight) == ONE_DNN
    noise, results = torch.randn(*rows, 260), []
    for worth in (1, 1 << 60):
        monkeypatch.setattr("regard.nn.linear.WORTH_IT", worth)
        outputs = layer(inputs)
        results.append([outputs, *torch.autograd.grad((outputs * noise).sum(), [inputs, *layer.parameters()])])
    plain = nn.functional.linear(inputs, layer.weight, layer.bias)
    results.append([plain, *torch.autograd.grad((plain * noise).sum(), [inputs, *layer.parameters()])])
    for ours, theirs, torchs in zip(*results, strict=True):  # float32 sums in another order
        torch.testing.assert_close(ours, torchs, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(theirs, torchs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("learning", ["inputs", "weight", "bias", "inputs weight bias"])
def test_what_does_not_learn_gets_no_gradient_and_the_rest_gets_its_own(learning):
    sides = {"inputs": torch.randn(3, 5, 4), "weight": torch.randn(6, 4), "bias": torch.randn(6)}
    leaves = [sides[name].requires_grad_() for name in learning.split()]
    ours, theirs = linear(**sides).square().sum(), nn.functional.linear(*sides.values()).square().sum()
    for one, other in zip(torch.autograd.grad(ours, leaves), torch.autograd.grad(theirs, leaves), strict=True):
        torch.testing.assert_close(one, other)


def test_autocast_multiplies_bfloat16_once_and_gives_float32_gradients():
    layer, inputs = Linear(4, 5), torch.randn(3, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, theirs = layer(inputs), nn.functional.linear(inputs, layer.weight, layer.bias)
    assert outputs.dtype == torch.bfloat16
    torch.testing.assert_close(outputs, theirs)
    leaves = [inputs, *layer.parameters()]
    for one, other in zip(*(torch.autograd.grad(each.float().sum(), leaves) for each in (outputs, theirs)), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)  # bfloat16 has 8 bits


@pytest.mark.parametrize("worth", [1, 1 << 60])
def test_a_product_may_end_at_zero(worth, monkeypatch):
    monkeypatch.setattr("regard.nn.linear.WORTH_IT", worth)
    inputs, weight, bias = torch.randn(7, 30), torch.randn(26, 30), torch.randn(26)
    expected = (inputs.double() @ weight.double().T + bias.double()).clamp(min=0).float()
    torch.testing.assert_close(matmul(inputs, weight, bias, relu=True), expected, rtol=1e-4, atol=1e-4)
