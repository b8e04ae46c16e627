"""Matrices that stay rounded are, to whatever reads them, the float32 matrices that they stand for."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard.nn.embedding import Embedding
from regard.nn.linear import Linear
from regard.nn.rounding import RoundedMatrix, by_rows, make_whole, rounded, rows_of, scaled


def both(outputs=7, inputs=5):
    """One that is rounded, and s Q in float64 and back."""
    integers, scales = rounded(torch.randn(outputs, inputs))
    return RoundedMatrix(integers, scales), (integers.double() * scales.double()[:, None]).float()


OPERATIONS = {
    "product": lambda weight: torch.arange(10.0).view(2, 5) @ weight.T,
    "linear": lambda weight: functional.linear(torch.arange(5.0), weight),
    "one row": lambda weight: weight[3],
    "some rows": lambda weight: weight[torch.tensor([[1, 2], [6, 0]])],
    "words": lambda weight: functional.embedding(torch.tensor([[1, 2], [6, 0]]), weight),
    "sum": lambda weight: weight.sum(0),
    "view": lambda weight: weight.view(35) * 2,
    "concatenated": lambda weight: torch.cat([weight, torch.ones(1, 5)]),
    "detached": lambda weight: weight.detach() + 0,
    "as float64": lambda weight: weight.to(torch.float64),
    "as float32": lambda weight: weight.to(torch.float32) + 0,
    "cloned": lambda weight: weight.clone(),
    "copied": lambda weight: copy.deepcopy(weight) + 0,
    "finite": lambda weight: weight.isfinite(),
}


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_every_operation_sees_the_matrix(operation):
    weight, expected = both()
    found = operation(weight)
    assert type(found) is torch.Tensor
    torch.testing.assert_close(found, operation(expected))


def test_its_shape_is_known_without_it():
    weight, expected = both()
    assert (weight.shape, weight.dtype, weight.device) == (expected.shape, expected.dtype, expected.device)
    assert weight.to("cpu") is weight.detach() is weight


@torch.no_grad()
def test_nothing_writes_into_it():
    weight, expected = both()
    for write in (lambda: weight.mul_(2), lambda: weight.zero_(), lambda: weight.copy_(expected)):
        with pytest.raises(NotImplementedError, match="stays as it is"):
            write()
    assert weight.clone().equal(expected)


def test_rows_are_moved_and_scaled_without_rounding_them_again():
    (first, plain), (second, other) = both(4), both(6)
    found = by_rows(lambda parts: torch.cat(parts).flip(0), [first, scaled(second, -0.37)])
    assert isinstance(found, RoundedMatrix)
    assert found.integers.equal(torch.cat([first.integers, second.integers]).flip(0))
    torch.testing.assert_close(found.clone(), torch.cat([plain, other * -0.37]).flip(0))
    assert by_rows(torch.cat, [plain, other]).equal(torch.cat([plain, other]))
    some = rows_of(first, torch.tensor([2, 0]))
    assert isinstance(some, RoundedMatrix)
    torch.testing.assert_close(some.clone(), plain[[2, 0]])
    assert rows_of(plain, torch.tensor([2, 0])).equal(plain[[2, 0]])
    assert scaled(plain, 2.0).equal(plain * 2)


def test_modules_compute_with_it_as_with_the_matrix():
    (weight, plain), tokens = both(6, 6), torch.tensor([[1, 5], [0, 3]])
    for kind in (Linear, Embedding, nn.Linear):
        module, expected = kind(6, 6), kind(6, 6)
        expected.weight.data = plain
        if hasattr(module, "bias"):
            expected.bias.data = module.bias.data
        module._parameters["weight"] = weight
        given = tokens if kind is Embedding else plain[tokens]
        torch.testing.assert_close(module.to("cpu").eval()(given), expected(given))
        make_whole(module)
        assert type(module.weight) is nn.Parameter
        torch.testing.assert_close(module(given), expected(given))
