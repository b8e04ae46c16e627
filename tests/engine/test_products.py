"""Products of rounded weights against NumPy's integers."""

import numpy as np
import pytest
import torch

from regard.engine.products import LARGEST, PRECISIONS, rounded

TOLERANCES = {"float32": 1e-5, "bfloat16": 2e-2, "int8": 3e-2}  # of the largest output


def integer_product(inputs, weight, bias, levels):
    """Both factors rounded row by row, multiplied as integers."""
    scales = np.abs(weight).max(axis=1) / LARGEST
    integers = np.rint(weight / scales[:, None]).astype(np.int64)
    largest = np.abs(inputs).max(axis=1, keepdims=True)
    shares = np.rint((inputs / largest).astype(np.float32) * levels).astype(np.int64)
    return (shares @ integers.T) * (largest / levels) * scales + bias


@pytest.mark.parametrize(("rows", "outputs"), [(1, 24), (7, 24), (16, 17), (3, 130)])
def test_int8_is_the_product_of_rounded_integers(rows, outputs):
    weight, bias, inputs = torch.randn(outputs, 40), torch.randn(outputs), torch.randn(rows, 40) * torch.rand(rows, 1) * 50
    levels = LARGEST if torch.cpu._is_vnni_supported() else LARGEST // 2
    expected = integer_product(inputs.double().numpy(), weight.double().numpy(), bias.double().numpy(), levels)
    found = PRECISIONS["int8"](weight, bias)(inputs).double().numpy()
    step = np.abs(inputs.numpy()).max(axis=1, keepdims=True) / levels * np.abs(weight.numpy()).max()
    assert (np.abs(found - expected) <= 1e-4 * np.abs(expected) + 1.01 * step).all()  # a share that lies between two integers
    assert np.median(np.abs(found - expected)) < 1e-4


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", [(24,), (5, 24), (2, 3, 24), (1, 1, 24)])
def test_every_precision_is_near_the_plain_product(precision, shape):
    weight, bias, inputs = torch.randn(17, 24), torch.randn(17), torch.randn(shape)
    expected = torch.nn.functional.linear(inputs, weight, bias)
    for given, wanted in ((bias, expected), (None, expected - bias)):
        found = PRECISIONS[precision](weight, given)(inputs)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, wanted, atol=TOLERANCES[precision] * expected.abs().max().item(), rtol=0)


def test_a_row_is_rounded_alike_in_any_batch():
    product, inputs = (
        PRECISIONS["int8"](torch.randn(9, 24), torch.randn(9)),
        torch.randn(5, 24) * 10.0 ** torch.arange(-2, 3)[:, None],
    )
    alone = torch.cat([product(row[None]) for row in inputs])
    torch.testing.assert_close(product(inputs), alone, atol=0, rtol=1e-6)


def test_rows_of_zeros_stay_zeros():
    product = PRECISIONS["int8"](torch.zeros(4, 8), None)
    assert product(torch.zeros(2, 8)).eq(0).all()
    assert product(torch.randn(2, 8)).eq(0).all()


def test_weights_that_were_rounded_before_stay_as_they_are():
    integers, scales = rounded(torch.randn(6, 30))
    again, same = rounded(integers * scales[:, None])
    assert again.equal(integers)
    torch.testing.assert_close(same, scales)
