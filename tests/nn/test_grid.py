"""Convolutions and places in two dimensions, beside sums that are written out in NumPy."""

import numpy as np
import pytest
import torch

from regard.nn.grid import GRID_NORMS, GRID_POSITIONS, GridBlock, GridConvolution
from regard.nn.transformer.norms import LayerNorm


def convolved(grid, filters):
    """Σ_ab W_ab x_{i+a, j+b}, a and b from -1 to 1; beyond the edge there is 0."""
    height, width, _ = grid.shape
    found = np.zeros((height, width, len(filters)))
    for i, j, a, b in np.ndindex(height, width, 3, 3):
        if 0 <= i + a - 1 < height and 0 <= j + b - 1 < width:
            found[i, j] += filters[:, :, a, b] @ grid[i + a - 1, j + b - 1]
    return found


def normed(grid, eps=1e-5):
    return (grid - grid.mean(-1, keepdims=True)) / np.sqrt(grid.var(-1, keepdims=True) + eps)


def test_a_group_is_normed_over_its_picture(double):
    """Of 16 elements two are a group: over all cells their mean is 0 and their variance 1."""
    norm, cells = spread(GRID_NORMS["group"](16)), 3 * torch.randn(2, 35, 16) + 1
    found = norm(cells).detach().numpy()
    for row, picture in zip(found, cells.numpy(), strict=True):
        for first in range(0, 16, 2):
            some = picture[:, first : first + 2]
            plain = (some - some.mean()) / np.sqrt(some.var() + 1e-5)
            weight, bias = (one.detach().numpy()[first : first + 2] for one in (norm.weight, norm.bias))
            np.testing.assert_allclose(row[:, first : first + 2], plain * weight + bias, atol=1e-12)


def test_renorm_gives_in_training_what_it_gives_in_use(double):
    """Values by the means of training, which have moved; gradients as if by those of the batch, times σ_B / σ (Ioffe 2017)."""
    norm, cells = GRID_NORMS["renorm"](3), (2 * torch.randn(4, 5, 3) + 1).requires_grad_()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.offset)
    norm.mean.copy_(torch.randn(3))
    norm.variance.copy_(torch.rand(3) + 0.5)
    found, slope = norm(cells), torch.randn(4, 5, 3)
    torch.testing.assert_close(found, norm.eval()(cells))
    flat = cells.flatten(0, 1)
    ratio = ((flat.var(0, correction=0) + norm.eps) / (norm.variance + norm.eps)).sqrt().detach()
    plain = torch.nn.functional.batch_norm(flat, None, None, ratio * norm.weight.detach(), training=True, eps=norm.eps)
    (theirs,) = torch.autograd.grad((plain * slope.flatten(0, 1)).sum(), cells)
    (ours,) = torch.autograd.grad((found * slope).sum(), cells)
    torch.testing.assert_close(ours, theirs)


def by_hand(layer, grid):
    weight, offset = (one.detach().numpy() for one in (layer.norm.weight, layer.norm.offset))
    return np.maximum(normed(convolved(grid, layer.filters.weight.detach().numpy())) * weight + offset, 0)


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def spread(module):
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    return module


def test_a_convolution_is_its_sum(double):
    layer, grid = spread(GridConvolution(2, 5, LayerNorm)), torch.randn(3, 4, 6, 2)
    for row, found in zip(grid, layer(grid), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), by_hand(layer, row.numpy()), atol=1e-12)


@pytest.mark.parametrize("stride", [(2, 2), (1, 3), (4, 5)])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_block_keeps_the_largest_of_each_rectangle(double, depth, stride):
    """Also of those that the edge cuts off; a cell lies over its rectangle."""
    block, grid = spread(GridBlock(2, 3, depth, stride, LayerNorm)), torch.randn(2, 5, 7, 2)
    for row, found in zip(grid.numpy(), block(grid).detach().numpy(), strict=True):
        states = by_hand(block.layers[0], row)
        for layer in block.layers[1:]:
            states = states + by_hand(layer, states)
        down, along = stride
        assert found.shape == (-(-5 // down), -(-7 // along), 3)
        for i, j in np.ndindex(*found.shape[:2]):
            part = states[i * down : (i + 1) * down, j * along : (j + 1) * along]
            np.testing.assert_allclose(found[i, j], part.max(axis=(0, 1)), atol=1e-12)


def sinusoids(place, size):
    """sin and cos in turn, of t / 10000^(2i/d)."""
    return [(np.sin, np.cos)[k % 2](place / 10000 ** (2 * (k // 2) / size)) for k in range(size)]


PLACES = {
    "none": lambda positions, i, j: np.zeros(6),
    "learned": lambda positions, i, j: (positions.rows[i, 0] + positions.columns[0, j]).detach().numpy(),
    "sinusoid": lambda positions, i, j: np.array([*sinusoids(i, 3), *sinusoids(j, 3)]),
}


@pytest.mark.parametrize("name", GRID_POSITIONS)
def test_a_cell_knows_its_row_and_its_column(name):
    positions, grid = GRID_POSITIONS[name](4, 5, 6), torch.randn(2, 4, 5, 6)
    found = (positions(grid) - grid).detach().numpy()
    for i, j in np.ndindex(4, 5):
        np.testing.assert_allclose(found[0, i, j], PLACES[name](positions, i, j), atol=1e-6)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


def test_every_kind_of_places_has_an_oracle():
    assert PLACES.keys() == GRID_POSITIONS.keys()
