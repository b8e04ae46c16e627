"""Networks at every position against torch.nn's layers."""

import pytest
import torch
from torch import nn

from regard.nn.transformer.feedforward import FEEDFORWARDS

SIZE, INNER = 6, 10


def oracle(network, activation):
    """The same weights in plain layers."""
    up, down = nn.Linear(SIZE, len(network.up.weight)), nn.Linear(INNER, SIZE)
    up.weight, up.bias = network.up.weight, network.up.bias
    down.weight, down.bias = network.down.weight, network.down.bias
    return nn.Sequential(up, activation, down)


class Gated(nn.Module):
    """x σ(x) y"""

    def forward(self, both):
        return both[..., :INNER] * torch.sigmoid(both[..., :INNER]) * both[..., INNER:]


ACTIVATIONS = {"relu": nn.ReLU(), "gelu": nn.GELU(), "swish": nn.SiLU(), "swiglu": Gated()}


def test_every_network_has_an_oracle():
    assert ACTIVATIONS.keys() == FEEDFORWARDS.keys()


@pytest.mark.parametrize("name", FEEDFORWARDS)
def test_a_network_is_its_equation(name):
    """Values and all gradients; every position alone."""
    network, inputs = FEEDFORWARDS[name](SIZE, INNER).double(), torch.randn(3, 5, SIZE).double().requires_grad_()
    plain, leaves = oracle(network, ACTIVATIONS[name]), [inputs, *network.parameters()]
    fed = network(inputs)
    assert fed.cost is None
    states = fed.states if fed.bias is None else fed.states + fed.bias
    torch.testing.assert_close(states, plain(inputs))
    ours, expected = (torch.autograd.grad(each.square().sum(), leaves) for each in (states, plain(inputs)))
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(network(inputs[1:2, 3:4]).states, states[1:2, 3:4])


@pytest.mark.parametrize("name", FEEDFORWARDS)
def test_dropout_lies_between_the_two_products(name):
    """All of the inner numbers dropped, b₂ is left; in use nothing is dropped."""
    network = FEEDFORWARDS[name](SIZE, INNER, dropout=1.0)
    inputs = torch.randn(3, 5, SIZE)
    torch.testing.assert_close(network(inputs).states, network.down.bias.expand(3, 5, SIZE))
    torch.testing.assert_close(network.eval()(inputs).states, oracle(network, ACTIVATIONS[name])(inputs))


@pytest.mark.parametrize("worth", [1, 1 << 60])
@pytest.mark.parametrize("learning", ["inputs", "enter", "leave", "all"])
def test_the_maximum_inside_a_product_changes_no_value_and_no_gradient(worth, learning, monkeypatch):
    """By either library, and twice through the same graph, for gradients are made in place."""
    monkeypatch.setattr("regard.nn.linear.WORTH_IT", worth)
    network, inputs = FEEDFORWARDS["relu"](SIZE, INNER), torch.randn(3, 5, SIZE)
    parts = {"inputs": [inputs], "enter": [*network.up.parameters()], "leave": [*network.down.parameters()]}
    leaves = [leaf for name in parts for leaf in parts[name] if learning in (name, "all")]
    network.requires_grad_(False)
    for leaf in leaves:
        leaf.requires_grad_()
    states, plain = network(inputs).states, oracle(network, ACTIVATIONS["relu"])(inputs)
    torch.testing.assert_close(states, plain)
    expected = torch.autograd.grad(plain.square().sum(), leaves)
    for keep in (True, False):
        found = torch.autograd.grad(states.square().sum(), leaves, retain_graph=keep)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other)
    with torch.no_grad():
        torch.testing.assert_close(network(inputs).states, plain)


def test_autocast_multiplies_bfloat16_and_gives_float32_gradients():
    network, inputs = FEEDFORWARDS["relu"](SIZE, INNER), torch.randn(3, 5, SIZE)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        states, plain = network(inputs).states, oracle(network, ACTIVATIONS["relu"])(inputs)
    assert states.dtype == torch.bfloat16
    torch.testing.assert_close(states, plain)
    leaves = list(network.parameters())
    for one, other in zip(*(torch.autograd.grad(each.float().sum(), leaves) for each in (states, plain)), strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)  # bfloat16 has 8 bits
