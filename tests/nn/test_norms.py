"""Norms against PyTorch's, what batch norm does to neighbours, and how sublayers join the stream."""

import pytest
import torch
from torch.nn import functional

from regard.nn.transformer.feedforward import SublayerOutput
from regard.nn.transformer.norms import NORMS, AddNorm, ResidualStream

BATCH, TIME, SIZE = 3, 5, 6
VISIBLE = torch.arange(TIME) < torch.tensor([[5], [3], [1]])


def built(name):
    norm = NORMS[name](SIZE).double()
    for parameter in norm.parameters():
        parameter.data.normal_()
    return norm


def states():
    return 3 * torch.randn(BATCH, TIME, SIZE).double() + 2


def batch_oracle(norm, inputs, visible):
    """PyTorch's own, on the visible rows only."""
    return functional.batch_norm(inputs[visible], None, None, norm.weight, norm.offset, training=True, eps=norm.eps)


ORACLES = {
    "layer": lambda norm, inputs, visible: functional.layer_norm(inputs, (SIZE,), norm.weight, norm.offset, 1e-5)[visible],
    "rms": lambda norm, inputs, visible: functional.rms_norm(inputs, (SIZE,), norm.weight, 1e-5)[visible],
    "batch": batch_oracle,
}


def test_every_norm_has_an_oracle():
    assert ORACLES.keys() == NORMS.keys()


@pytest.mark.parametrize("visible", [VISIBLE, None], ids=["padded", "whole"])
@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_pytorchs(name, visible):
    """Values, and gradients of all it reads."""
    norm, inputs = built(name), states().requires_grad_()
    shown = torch.ones_like(VISIBLE) if visible is None else visible
    leaves = [inputs, *norm.parameters()]
    weight = torch.randn(int(shown.sum()), SIZE).double()
    ours, oracle = norm(inputs, visible)[shown], ORACLES[name](norm, inputs, shown)
    torch.testing.assert_close(ours, oracle)
    pairs = zip(
        torch.autograd.grad((ours * weight).sum(), leaves), torch.autograd.grad((oracle * weight).sum(), leaves), strict=True
    )
    for gradient, expected in pairs:
        torch.testing.assert_close(gradient, expected)


def test_batch_norm_in_use_takes_the_moments_of_training():
    """Those that nn.BatchNorm1d keeps of the visible rows."""
    norm, oracle = built("batch"), torch.nn.BatchNorm1d(SIZE).double()
    oracle.weight, oracle.bias = norm.weight, norm.offset
    for _ in range(3):
        inputs = states()
        norm(inputs, VISIBLE)
        oracle(inputs[VISIBLE])
    torch.testing.assert_close(norm.mean, oracle.running_mean)
    torch.testing.assert_close(norm.variance, oracle.running_var)
    inputs = states()
    torch.testing.assert_close(norm.eval()(inputs, VISIBLE)[VISIBLE], oracle.eval()(inputs[VISIBLE]))
    torch.testing.assert_close(norm.mean, oracle.running_mean)  # use changes nothing


@pytest.mark.parametrize(("name", "leans"), [("batch", True), ("layer", False), ("rms", False)])
def test_the_lectures_argument_against_batch_norm(name, leans):
    """In training what becomes of a sentence depends on its neighbours in the batch, and of a word on words after it, if norms
    are taken over the batch; not if they are taken over the numbers of one position. In use it never does."""
    norm, inputs = built(name), states()
    neighbours, later = inputs.clone(), inputs.clone()
    neighbours[1:] += torch.randn(2, TIME, SIZE).double()
    later[:, 3:] *= 2
    for changed, same in ((neighbours, (slice(0, 1), slice(None))), (later, (slice(None), slice(0, 3)))):
        assert torch.allclose(norm.train()(inputs)[same], norm(changed)[same]) is not leans
        assert torch.allclose(norm.eval()(inputs)[same], norm(changed)[same])


@pytest.mark.parametrize("name", NORMS)
def test_a_batch_with_nothing_in_it_stays_finite(name):
    norm = built(name)
    assert norm(states(), torch.zeros_like(VISIBLE)).isfinite().all()
    assert all(buffer.isfinite().all() for buffer in norm.buffers())


@pytest.mark.parametrize("name", NORMS)
def test_bfloat16_is_normalised_as_float32_is(name):
    """With weights in float32, as under autocast: no warning, and rounded once on the way in and once on the way out."""
    norm, inputs = built(name).float(), states().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        ours = norm(inputs)
    torch.testing.assert_close(ours.float(), norm(inputs.float()), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_a_sublayer_joins_the_stream(name, before, bias):
    """Post-norm: h = norm(h + f). Pre-norm: h = h + f, of which the next sublayer reads norm(h)."""
    join, residual, result = AddNorm(built(name), 0.0, before), states(), states()
    offset = torch.randn(SIZE).double() if bias else None
    total, read = join(ResidualStream(residual, residual), SublayerOutput(result, bias=offset), VISIBLE)
    plain = residual + result + (offset if bias else 0)
    normed = ORACLES[name](join.norm, plain, VISIBLE)
    torch.testing.assert_close(read[VISIBLE], normed)
    torch.testing.assert_close(total[VISIBLE], plain[VISIBLE] if before else normed)


@pytest.mark.parametrize("before", [False, True])
def test_dropout_takes_what_the_sublayer_made_and_nothing_else(before):
    """With all of it dropped, the stream goes on as it was."""
    join, residual = AddNorm(built("layer"), 1.0, before), states()
    total, read = join(ResidualStream(residual, residual), SublayerOutput(states()), None)
    normed = ORACLES["layer"](join.norm, residual, torch.ones_like(VISIBLE)).view_as(residual)
    torch.testing.assert_close(read, normed)
    torch.testing.assert_close(total, residual if before else normed)
