"""Weights rounded all at once equal weights that autocast rounds one by one, and nothing else is rounded."""

import pytest
import torch
from kinds import KINDS, small
from recipes_by_shape import WRITERS
from test_laws import LENGTHS, SOURCE, TARGET
from tiny import FEW, tiny
from torch import nn

from regard.data.batching import reading
from regard.models import build, configure
from regard.nn.embedding import Embedding
from regard.nn.linear import Linear
from regard.recipe import read_values
from regard.training.capture import Captured
from regard.training.cast_weights import CastWeights
from regard.training.objective import Objective

EXAMPLES = reading(SOURCE, LENGTHS, target=TARGET.roll(-1, 1))
MODELS = {**{name: lambda values=values: small(values) for name, values in KINDS.items()}}
MODELS |= {name: lambda values=values: tiny(values) for name, values in FEW.items()}


def in_bfloat16(function):
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16):
        return function(EXAMPLES)


@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_are_those_of_autocast(name):
    objective = Objective(MODELS[name]().train(), 0.1)
    whole = in_bfloat16(objective).total
    whole.backward()
    expected = [parameter.grad for parameter in objective.parameters()]
    objective.zero_grad(set_to_none=True)
    leaves = CastWeights(objective, torch.bfloat16)
    captured = Captured(lambda: in_bfloat16(leaves).total, leaves.parameters, leaves=leaves.tensors)
    torch.testing.assert_close(captured(), whole.detach(), rtol=1e-3, atol=1e-3)
    for parameter, gradient in zip(objective.parameters(), expected, strict=True):
        assert (parameter.grad is None) == (gradient is None)
        if gradient is not None:  # uses of one weight are added in 16 bits
            assert parameter.grad.dtype == parameter.dtype
            torch.testing.assert_close(parameter.grad, gradient, rtol=0.02, atol=float(gradient.abs().max()) * 0.03 + 1e-6)


def places(model):
    return {
        (prefix, name): parameter
        for prefix, module in model.named_modules()
        for name, parameter in module.named_parameters(recurse=False)
    }


@pytest.mark.parametrize("name", [name for name in WRITERS if f"{name}-small" not in WRITERS and "latin-" not in name])
def test_a_pass_leaves_the_exact_weights_where_they_were(name):
    """Of every recipe, in shape only: shared and tied weights stand in several places."""
    with torch.device("meta"):
        model = build(configure(read_values(name)["model"]), 60, 60)
        before, leaves = places(model), CastWeights(model, torch.bfloat16)
        inside = []
        model.forward = lambda: inside.append(places(model))
        leaves()
    assert places(model).keys() == before.keys()
    assert all(places(model)[place] is parameter for place, parameter in before.items())
    leaf_of = dict(zip(leaves.parameters, leaves.tensors, strict=True))
    assert all(inside[0][place] is leaf_of[parameter] for place, parameter in before.items())


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.map, self.exact = Embedding(5, 4), Linear(4, 4), nn.Linear(4, 4)
        self.frozen = Linear(4, 4).requires_grad_(requires_grad=False)

    def forward(self):
        parts = self.table.weight, self.map.weight, self.map.bias, self.exact.weight, self.frozen.weight
        return [part.dtype for part in parts]


def test_only_weights_of_our_maps_and_tables_that_learn_are_rounded():
    kinds = CastWeights(Mixed(), torch.bfloat16)()
    assert kinds == [torch.bfloat16, torch.bfloat16, torch.float32, torch.float32, torch.float32]
    assert set(CastWeights(Mixed())()) == {torch.float32}


def test_a_changed_weight_is_seen_by_the_next_pass():
    layer = Linear(2, 1, bias=False)
    leaves, ones = CastWeights(layer, torch.bfloat16), torch.ones(1, 2, dtype=torch.bfloat16)
    for value in (1.0, 3.0):
        with torch.no_grad():
            layer.weight.fill_(value)
        assert leaves(ones).item() == 2 * value
