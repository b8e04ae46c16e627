import pytest
import torch

from regard.nn import cross_entropy
from regard.nn.cross_entropy import linear_cross_entropy


def loss_and_gradients(layer, outputs, target, precision):
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
        loss = linear_cross_entropy(outputs, layer, target, 0, 0.1)
    return loss, torch.autograd.grad(loss, [outputs, *layer.parameters()])


def test_autocast_rounds_the_logits_and_nothing_after_them(monkeypatch):
    """The loss of bfloat16 logits is taken in float32: it is torch's own loss of the same logits."""
    layer, outputs = torch.nn.Linear(16, 300), torch.randn(1, 64, 16)
    target = torch.randint(1, 300, (1, 64))
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        ours = linear_cross_entropy(outputs, layer, target, 0)
        logits = layer(outputs)
    assert logits.dtype == torch.bfloat16
    theirs = torch.nn.functional.cross_entropy(logits[0].float(), target[0], reduction="sum")
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)


def test_autocast_gives_float32_gradients_that_are_nearly_those_of_float32():
    layer, outputs = torch.nn.Linear(16, 50), torch.randn(2, 40, 16, requires_grad=True)
    target = torch.randint(1, 50, (2, 40))
    exact, rounded = (loss_and_gradients(layer, outputs, target, name) for name in ("float32", "bfloat16"))
    assert rounded[0].item() == pytest.approx(exact[0].item(), rel=0.01)
    for ours, theirs in zip(rounded[1], exact[1], strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 0.02 * theirs.norm()  # bfloat16 has 8 bits


@pytest.mark.parametrize("learning", ["outputs", "weight"])
def test_what_does_not_learn_does_not_stop_the_rest(learning):
    layer, outputs = torch.nn.Linear(4, 7), torch.randn(2, 3, 4)
    target = torch.randint(1, 7, (2, 3))
    layer.requires_grad_(False)
    leaf = outputs if learning == "outputs" else getattr(layer, learning)
    leaf.requires_grad_()
    theirs = torch.nn.functional.cross_entropy(layer(outputs).flatten(0, 1), target.flatten(), reduction="sum")
    ours = linear_cross_entropy(outputs, layer, target, 0)
    torch.testing.assert_close(torch.autograd.grad(ours, leaf), torch.autograd.grad(theirs, leaf))


def test_the_bias_may_learn_alone():
    layer, outputs = torch.nn.Linear(4, 7), torch.randn(2, 3, 4)
    layer.weight.requires_grad_(False)
    torch.autograd.grad(linear_cross_entropy(outputs, layer, torch.ones(2, 3, dtype=torch.long), 0), layer.bias)


def test_bfloat16_gradients_do_not_depend_on_the_chunk(monkeypatch):
    layer, outputs = torch.nn.Linear(64, 500), torch.randn(1, 4096, 64)
    target = torch.randint(1, 500, (1, 4096))
    target[:, ::2] = 7
    gradients = []
    for chunk in (1 << 24, 500 * 65):
        monkeypatch.setattr(cross_entropy, "CHUNK", {"cpu": chunk})
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = linear_cross_entropy(outputs, layer, target, 0)
        gradients.append(torch.autograd.grad(loss, layer.weight)[0])
    assert (gradients[0] - gradients[1]).norm() < 0.004 * gradients[0].norm()
