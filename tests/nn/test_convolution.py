"""Convolutions and the blocks made of them, against torch's conv1d and the papers' formulas in float64."""

import pytest
import torch
from torch.nn.functional import conv1d, layer_norm, pad

from regard.nn.convolution import HALF, Convolution, DilatedBlock, GatedBlock, gated, scale_gradient
from regard.nn.pooling import mean_over

SHAPES = [(1, 1), (2, 1), (3, 1), (3, 4), (5, 2), (4, 3)]
VISIBLE = torch.arange(7) < torch.tensor([[7], [4]])


def kernel(convolution):
    """[output, columns] as conv1d wants it: [output, input, width]."""
    return convolution.kernel.detach().view(-1, convolution.width, convolution.inputs).transpose(1, 2)


def by_torch(convolution, inputs, before, after):
    padded = pad(inputs.transpose(1, 2), (before, after))
    return conv1d(padded, kernel(convolution), convolution.bias, dilation=convolution.dilation).transpose(1, 2)


def random_bias(module):
    for parameter in module.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter)
    return module.double().eval()


@pytest.mark.parametrize("weight_norm", [False, True])
@pytest.mark.parametrize(("width", "dilation"), SHAPES)
def test_values_and_gradients_are_those_of_conv1d(width, dilation, weight_norm):
    convolution = random_bias(Convolution(3, 5, width, dilation, weight_norm=weight_norm))
    inputs = torch.randn(2, 17, 3, dtype=torch.double, requires_grad=True)
    mine, theirs = convolution(inputs), by_torch(convolution, inputs, 0, 0)
    torch.testing.assert_close(mine, theirs)
    grad = torch.randn_like(mine)
    torch.testing.assert_close(torch.autograd.grad(mine, inputs, grad)[0], torch.autograd.grad(theirs, inputs, grad)[0])
    free = convolution.kernel.detach().requires_grad_()
    expected = conv1d(
        inputs.transpose(1, 2), free.view(5, width, 3).transpose(1, 2), convolution.bias, dilation=dilation
    ).transpose(1, 2)
    if not weight_norm:
        torch.testing.assert_close(
            torch.autograd.grad(convolution(inputs), convolution.weight, grad)[0],
            torch.autograd.grad(expected, free, grad)[0],
        )


def test_a_normed_weight_has_the_length_of_its_gain():
    convolution = Convolution(3, 5, 2, weight_norm=True)
    torch.testing.assert_close(convolution.kernel, convolution.weight)  # at the start
    convolution.weight.data.mul_(3)
    convolution.gain.data.fill_(2)
    torch.testing.assert_close(convolution.kernel.norm(dim=1), torch.full((5,), 2.0))
    torch.testing.assert_close(convolution.kernel[1] / 2, convolution.weight[1] / convolution.weight[1].norm())


@pytest.mark.parametrize(("width", "dilation"), SHAPES)
def test_around_sees_both_sides_and_no_padding(width, dilation):
    convolution = random_bias(Convolution(3, 5, width, dilation))
    inputs = torch.randn(2, 7, 3, dtype=torch.double)
    before = (width - 1) * dilation // 2
    expected = by_torch(convolution, inputs * VISIBLE[..., None], before, (width - 1) * dilation - before)
    torch.testing.assert_close(convolution.around(inputs, VISIBLE), expected)
    inputs[1, 4:] = torch.nan
    torch.testing.assert_close(convolution.around(inputs, VISIBLE), expected)


@pytest.mark.parametrize(("width", "dilation"), SHAPES)
def test_after_sees_the_past_whole_or_in_pieces(width, dilation):
    convolution = random_bias(Convolution(3, 5, width, dilation))
    inputs = torch.randn(2, 7, 3, dtype=torch.double)
    expected = by_torch(convolution, inputs, (width - 1) * dilation, 0)
    after, start = convolution.bind_after(), convolution.start(inputs)
    torch.testing.assert_close(after(inputs, start)[0], expected)
    pieces, history = [], start
    for piece in inputs.split([1, 1, 3, 2], dim=1):
        found, history = after(piece, history)
        pieces.append(found)
        assert history.shape == start.shape == (2, (width - 1) * dilation, 3)
    torch.testing.assert_close(torch.cat(pieces, dim=1), expected)


@pytest.mark.parametrize("size", [3, 4])
def test_a_gated_block_is_its_formula(size):
    """√½ (x + a ∗ σ(b)), x through a matrix where sizes differ."""
    block = random_bias(GatedBlock(3, size, 3))
    inputs = torch.randn(2, 7, 3, dtype=torch.double)
    first, gate = by_torch(block.convolution, inputs * VISIBLE[..., None], 1, 1).split(size, dim=-1)
    residual = inputs if size == 3 else inputs @ block.project.weight.T + block.project.bias
    expected = 0.5**0.5 * (residual + first / (1 + torch.exp(-gate)))
    torch.testing.assert_close(block(inputs, VISIBLE), expected)


def test_a_dilated_block_is_its_formula():
    block = random_bias(DilatedBlock(3, 3, 2))
    inputs = torch.randn(2, 7, 6, dtype=torch.double)

    def activate(norm, states):
        return layer_norm(states, states.shape[-1:], norm.weight, norm.bias).clamp(min=0)

    inner = activate(block.norms[1], activate(block.norms[0], inputs) @ block.narrow.weight.T + block.narrow.bias)
    for found, around in (
        (block(inputs, VISIBLE), by_torch(block.convolution, inner * VISIBLE[..., None], 2, 2)),
        (block.after(inputs, block.convolution.start(inputs))[0], by_torch(block.convolution, inner, 4, 0)),
    ):
        widened = activate(block.norms[2], around) @ block.widen.weight.T + block.widen.bias
        torch.testing.assert_close(found, inputs + widened)


def test_variances_at_the_start_are_those_asked_for():
    """A gated unit gives a quarter of what it takes, so blocks neither fade nor swell (Gehring et al. 2017, section 3.5)."""
    torch.manual_seed(1)
    inputs = torch.randn(8, 50, 64)
    assert abs(Convolution(64, 256, 3, variance=4.0)(inputs).var().item() - 4) < 0.3
    small = 0.1 * inputs  # where σ is a half: E[glu²] = Var[a] / 4
    assert abs(gated(Convolution(64, 512, 3, variance=4.0)(small)).var().item() - 0.01) < 0.001
    states, visible = 0.1 * torch.randn(8, 50, 64), torch.ones(8, 50, dtype=torch.bool)
    for _ in range(8):
        states = GatedBlock(64, 64, 3)(states, visible)
    assert 0.005 < states.var().item() < 0.015
    assert pytest.approx(2**-0.5) == HALF


def test_a_scaled_gradient_leaves_numbers_alone():
    states = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    scaled = scale_gradient(states, 0.25)
    torch.testing.assert_close(scaled, states)
    scaled.pow(3).sum().backward()
    torch.testing.assert_close(states.grad, 0.25 * 3 * states.detach() ** 2)


def test_a_mean_leaves_padding_out():
    states = torch.randn(2, 7, 3)
    states[1, 4:] = torch.nan
    torch.testing.assert_close(mean_over(states, VISIBLE), torch.stack([states[0].mean(0), states[1, :4].mean(0)]))
