"""The elementwise half of a step, fused, against the cell's own update; and the fused loss against torch's."""

import pytest
import torch
from paths import GATED
from torch.nn import functional

from regard.nn.kernels.layers.entropy import entropy
from regard.nn.kernels.recurrent.gates import bind_reset, bind_update
from regard.nn.recurrent.cells import CELLS


def distance(ours, theirs):
    """The largest of all differences, where a gradient that is not there is 0."""
    pairs = [(one if one is not None else torch.zeros(()), other) for one, other in zip(ours, theirs, strict=True)]
    pairs = [(one, torch.zeros_like(one) if other is None else other) for one, other in pairs]
    return max(float((one.detach().cpu().double() - other.detach().cpu().double()).abs().max()) for one, other in pairs)


class Step:
    """A cell between its products: shares, a state, and a random gradient for each result."""

    def __init__(self, name, rows, hidden, device="cpu", dtype=torch.float32):
        def random(*shape):
            return torch.randn(*shape).to(device, dtype)

        self.cell = CELLS[name](3, hidden).to(device, dtype)
        self.shares = {letter: random(rows, 2, self.cell.count(letter) * hidden)[:, 1] for letter in self.cell.letters}
        self.state = self.cell.State(*(random(rows, hidden) for _ in self.cell.State._fields))
        self.slopes = [random(rows, hidden) for _ in self.state]

    def results(self, fused, reset, given):
        """Values and gradients, where only the first `given` results have one."""
        cell, letters = self.cell, [letter for letter in self.shares if not (reset and letter == "m")]
        shares = {letter: self.shares[letter].detach().requires_grad_() for letter in letters}
        state = cell.State(*(part.detach().requires_grad_() for part in self.state))
        if reset:
            new = (bind_reset(cell)(shares, state) if fused else cell.reset(cell.add(shares), state),)
        else:
            new = bind_update(cell)(shares, state) if fused else cell.update(cell.add(shares), state, *cell.vectors)
        leaves = [*shares.values(), *state, *cell.parameters()]
        return [*new, *torch.autograd.grad(new[:given], leaves, self.slopes[:given], allow_unused=True)]

    def distance(self):
        ways = [(False, given) for given in range(1, len(self.state) + 1)]
        ways += [(True, 1)] if self.cell.count("m") else []
        return max(distance(self.results(True, *way), self.results(False, *way)) for way in ways)


def losses(rows, vocabulary, smoothing, device="cpu", dtype=torch.float32):
    """Ours and torch's in float64: the loss, and its slope. Word 0 is to be ignored, and stands in some rows."""
    logits = torch.randn(rows, vocabulary).to(device, dtype)
    target = torch.randint(0, vocabulary, (rows,), device=device)
    target[::3] = 0
    exact = logits.double().requires_grad_()
    whole = functional.cross_entropy(exact, target, ignore_index=0, label_smoothing=smoothing, reduction="sum")
    (slope,) = torch.autograd.grad(whole, exact)
    return entropy(logits, target, 0, smoothing), (whole, slope)


@pytest.mark.gpu
@pytest.mark.parametrize("name", GATED)
def test_a_fused_step_is_the_cells_update_on_a_gpu(name):
    assert Step(name, 33, 300, "cuda").distance() < 1e-5


@pytest.mark.gpu
def test_a_fused_step_in_numbers_of_16_bits():
    """The plain update rounds after every operation, ours once."""
    step = Step("lstm", 33, 300, "cuda", torch.bfloat16)
    ours = step.results(True, False, 2)
    step.cell, step.shares = step.cell.double(), {letter: share.double() for letter, share in step.shares.items()}
    step.state, step.slopes = step.cell.State(*(part.double() for part in step.state)), [one.double() for one in step.slopes]
    assert distance(ours, step.results(False, False, 2)) < 3e-2


@pytest.mark.gpu
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("kind", "near"), [(torch.float32, 1e-6), (torch.bfloat16, 4e-3)])
def test_the_fused_loss_on_a_gpu(kind, near, smoothing):
    (loss, slope), (exact, exact_slope) = losses(50, 8001, smoothing, "cuda", kind)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-6, atol=0)
    assert distance([slope], [exact_slope]) < near
