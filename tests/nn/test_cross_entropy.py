"""The chunked loss against NumPy and against torch, values and gradients."""

import numpy as np
import pytest
import torch

from regard.nn import cross_entropy
from regard.nn.cross_entropy import linear_cross_entropy

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def make(device="cpu", dtype=torch.float64):
    layer = torch.nn.Linear(4, 7).to(device, dtype)
    outputs = torch.randn(3, 5, 4, device=device, dtype=dtype, requires_grad=True)
    target = torch.randint(1, 7, (3, 5), device=device)
    target[1, 3:] = target[2, 1:] = 0
    return layer, outputs, target


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_equation_in_numpy(smoothing):
    layer, outputs, target = make()
    expected = 0.0
    for row, column in np.ndindex(3, 5):
        scores = layer(outputs[row, column]).detach().numpy()
        log_probs = scores - np.log(np.exp(scores).sum())
        truth = np.full(7, smoothing / 7)
        truth[target[row, column]] += 1 - smoothing
        expected -= (truth @ log_probs) * (target[row, column].item() != 0)
    assert linear_cross_entropy(outputs, layer, target, 0, smoothing).item() == pytest.approx(float(expected), rel=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 14, 1 << 20])
def test_values_and_gradients_of_torch_for_any_chunk(smoothing, chunk, device, monkeypatch):
    monkeypatch.setattr(cross_entropy, "CHUNK", {device: chunk})
    layer, outputs, target = make(device, torch.float32)
    leaves = [outputs, *layer.parameters()]
    ours = linear_cross_entropy(outputs, layer, target, 0, smoothing)
    theirs = torch.nn.functional.cross_entropy(
        layer(outputs).flatten(0, 1), target.flatten(), ignore_index=0, reduction="sum", label_smoothing=smoothing
    )
    torch.testing.assert_close(ours, theirs)
    for one, other in zip(torch.autograd.grad(ours * 0.3, leaves), torch.autograd.grad(theirs * 0.3, leaves), strict=True):
        torch.testing.assert_close(one, other)


def test_gradcheck():
    layer, outputs, target = make()
    # the loss is kept in float32 for any inputs: a coarser step and tolerance
    assert torch.autograd.gradcheck(
        lambda outputs, *_: linear_cross_entropy(outputs, layer, target, 0, 0.1).double(),
        (outputs, *layer.parameters()), eps=1e-3, atol=2e-3,
    )  # fmt: skip


def test_nothing_but_padding_costs_nothing():
    layer, outputs, target = make()
    loss = linear_cross_entropy(outputs, layer, torch.zeros_like(target), 0)
    assert loss.item() == 0
    assert torch.autograd.grad(loss, outputs)[0].eq(0).all()


def test_all_logits_are_never_saved():
    layer, outputs, target = make()
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor):
        linear_cross_entropy(outputs, layer, target, 0)
    assert max(sizes) < 3 * 5 * 7


def test_rows_are_cut_into_whole_tiles_and_none_is_lost(monkeypatch):
    rows, weight = torch.zeros(1000, 2), torch.zeros(9, 2)
    for chunk, first in ((9 * 262, 256), (9 * 64, 64), (9 * 50, 50), (1, 1), (9 << 20, 1000)):
        monkeypatch.setattr(cross_entropy, "CHUNK", {"cpu": chunk})
        parts = [rows.new_tensor(range(1000))[part] for part in cross_entropy.chunks(rows, weight)]
        assert torch.cat(parts).tolist() == list(range(1000))
        assert len(parts[0]) == first


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_words_that_are_as_good_as_impossible(smoothing):
    """Logits so far apart that most probabilities are 0 in float32, the truth's among them."""
    layer, outputs = torch.nn.Linear(4, 3001), 60 * torch.randn(1, 70, 4)
    target = torch.randint(1, 3001, (1, 70))
    leaves = [outputs.requires_grad_(), *layer.parameters()]
    exact = torch.nn.functional.linear(outputs.double(), layer.weight.double(), layer.bias.double())[0]
    assert (exact.softmax(dim=1).gather(1, target.T) < 1e-45).any()
    theirs = torch.nn.functional.cross_entropy(exact, target[0], reduction="sum", label_smoothing=smoothing)
    ours = linear_cross_entropy(outputs, layer, target, 0, smoothing)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=0)
    for one, other in zip(*(torch.autograd.grad(each, leaves) for each in (ours, theirs)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
