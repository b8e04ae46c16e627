"""Networks at every position against torch.nn's layers."""

import pytest
import torch
from torch import nn

from regard.nn.feedforward import FEEDFORWARDS

SIZE, INNER = 6, 10


def oracle(network, activation):
    """The same weights in plain layers."""
    enter, leave = nn.Linear(SIZE, len(network.enter.weight)), nn.Linear(INNER, SIZE)
    enter.weight, enter.bias = network.enter.weight, network.enter.bias
    leave.weight, leave.bias = network.leave.weight, network.leave.bias
    return nn.Sequential(enter, activation, leave)


class Gated(nn.Module):
    """x σ(x) y"""

    def forward(self, both):
        return both[..., :INNER] * torch.sigmoid(both[..., :INNER]) * both[..., INNER:]


ACTIVATIONS = {"relu": nn.ReLU(), "gelu": nn.GELU(), "swiglu": Gated()}


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
    torch.testing.assert_close(network(inputs).states, network.leave.bias.expand(3, 5, SIZE))
    torch.testing.assert_close(network.eval()(inputs).states, oracle(network, ACTIVATIONS[name])(inputs))
