"""Flash attention against the dense formula in float64: values and all gradients."""

from typing import NamedTuple

import pytest
import torch

from regard.nn.kernels.attention.flash import flash_attention, hard_attention

CLOSE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}  # ||ours - dense|| / ||dense||


class Dense(NamedTuple):
    """The specification: whole matrices."""

    scores: torch.Tensor
    counts: torch.Tensor
    weights: torch.Tensor
    log_sum: torch.Tensor


def dense(query, keys, scale=1.0, visible=None, first=None, last=None):
    batch, heads, target, source = *query.shape[:3], keys.shape[2]
    j = torch.arange(source, device=query.device)
    counts = torch.ones(batch, heads, target, source, dtype=torch.bool, device=query.device)
    for part in (None if visible is None else visible[:, None, None], None if first is None else j >= first[..., None],
                 None if last is None else j <= last[..., None]):  # fmt: skip
        counts = counts if part is None else counts & part
    scores = scale * query @ keys.transpose(2, 3)
    some = counts.any(-1)
    top = (
        scores.detach().masked_fill(~counts, -1e30).amax(-1, keepdim=True)
        if source
        else scores.new_zeros(batch, heads, target, 1)
    )
    powers = torch.where(counts, (scores - top).masked_fill(~counts, 0.0).exp(), 0.0)
    total = torch.where(some, powers.sum(-1), 1.0)
    log_sum = torch.where(some, total.log() + top.squeeze(-1), float("-inf"))
    return Dense(scores, counts, powers / total[..., None], log_sum)


class Trial:
    """Inputs with their gradients, ours in one kind of number and the same in float64."""

    def __init__(self, shape, kind=torch.float32, device="cpu", *, spread=1.0, seed=0):
        self.batch, self.heads, self.target, self.source, self.size, self.value = shape
        self.generator = torch.Generator().manual_seed(seed)
        self.kind, self.device = kind, device
        rows = (self.batch, self.heads)
        parts = (*rows, self.target, self.size), (*rows, self.source, self.size), (*rows, self.source, self.value)
        self.inputs = [self.random(*part, factor=factor) for part, factor in zip(parts, (spread, spread, 1.0), strict=True)]
        self.scale = self.size**-0.5
        self.outer = self.random(*rows, self.target, self.value)
        self.slopes = torch.randn(2, *rows, self.target, generator=self.generator).to(device)

    def random(self, *shape, factor=1.0):
        return (factor * torch.randn(*shape, generator=self.generator)).to(self.device, self.kind)

    def visible(self):
        """The first sentence has nothing to see, the last sees all that it has."""
        lengths = torch.linspace(0, self.source, self.batch).long() if self.batch > 1 else torch.tensor([self.source])
        shown = torch.arange(self.source) < lengths[:, None]
        return (shown & (torch.rand(self.batch, self.source, generator=self.generator) < 0.9)).to(self.device)

    def window(self, heads, width):
        """Around a place that moves on, some empty, some over the edges."""
        middle = torch.linspace(-2, self.source + 1, self.target).long().expand(self.batch, heads, -1)
        middle = middle + torch.randint(-2, 3, middle.shape, generator=self.generator)
        return (middle - width).to(self.device), (
            middle + torch.randint(-1, width + 1, middle.shape, generator=self.generator)
        ).to(self.device)

    def centre(self):
        return (torch.rand(self.batch, self.heads, self.target, generator=self.generator) * (self.source + 8) - 4).to(
            self.device
        )

    def ours(self, function, *extra):
        leaves = [part.detach().clone().requires_grad_() for part in (*self.inputs, *extra)]
        return gradients(function(*leaves), leaves, self)

    def theirs(self, function, *extra):
        leaves = [part.detach().double().requires_grad_() for part in (*self.inputs, *extra)]
        return gradients(function(*leaves), leaves, self)


def gradients(outputs, leaves, trial):
    """Outputs, and the gradients of a random sum of those that are finite."""
    outer, slopes = trial.outer, trial.slopes
    total = sum(
        (torch.where(part.isfinite(), part, 0.0) * (outer if part.dim() == 4 else slopes[number])).double().sum()
        for number, part in enumerate(outputs)
    )
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [part.detach() for part in outputs] + [
        torch.zeros_like(leaf) if part is None else part for leaf, part in zip(leaves, found, strict=True)
    ]


def far(ours, theirs, close):
    """What differs, and by how much."""
    return {
        number: distance
        for number, (x, y) in enumerate(zip(ours, theirs, strict=True))
        if not (distance := apart(x, y)) <= close
    }


def apart(ours, theirs):
    ours, theirs = ours.double(), theirs.double()
    if not torch.equal(ours.isinf(), theirs.isinf()):
        return float("inf")
    ours, theirs = (torch.where(part.isinf(), 0.0, part) for part in (ours, theirs))
    return float((ours - theirs).norm() / theirs.norm().clamp(min=1e-6 * max(1, theirs.numel()) ** 0.5))


def check_soft(trial, *, hides=False, window=None, centred=False, deviation=3.0):
    scope = {"visible": trial.visible() if hides else None, "scale": trial.scale}
    scope |= dict(zip(("first", "last"), trial.window(*window) if window else (None, None), strict=True))

    def ours(query, keys, values, *centre):
        look = flash_attention(query, keys, values, centre=centre[0] if centre else None, deviation=deviation, **scope)
        return look.context, look.log_sum

    def theirs(query, keys, values, *centre):
        found = dense(query, keys, **scope)
        weights = found.weights
        if centre:
            away = torch.arange(trial.source, device=query.device) - centre[0][..., None]
            weights = weights * torch.exp(-(away**2) / (2 * deviation**2))
        return weights @ values, found.log_sum

    extra = [trial.centre()] if centred else []
    assert not far(trial.ours(ours, *extra), trial.theirs(theirs, *extra), CLOSE[trial.kind])


def check_hard(trial, *, hides=False, window=None):
    scope = {"visible": trial.visible() if hides else None, "scale": trial.scale}
    scope |= dict(zip(("first", "last"), trial.window(*window) if window else (None, None), strict=True))
    place = hard_attention(*trial.inputs, **scope).place
    found = dense(*(part.double() for part in trial.inputs[:2]), **scope)
    assert torch.equal(place == -1, ~found.counts.any(-1))
    assert found.counts.gather(3, place.clamp(min=0)[..., None])[..., 0][place >= 0].all()
    if trial.kind == torch.float32:
        best = torch.where(found.counts, found.scores, float("-inf")).argmax(-1)
        assert torch.equal(place, torch.where(found.counts.any(-1), best, -1))

    def ours(query, keys, values):
        found = hard_attention(query, keys, values, **scope)
        assert torch.equal(found.place, place)
        return found.context, found.log_sum

    def theirs(query, keys, values):
        at = place.clamp(min=0)[..., None].expand(-1, -1, -1, trial.value)
        return values.gather(2, at) * (place >= 0)[..., None], dense(query, keys, **scope).log_sum

    assert not far(trial.ours(ours), trial.theirs(theirs), CLOSE[trial.kind])


# What follows needs a GPU. Each (size, kind of number, set of options) is compiled anew, which takes seconds.

TYPES = [torch.float32, torch.float16, torch.bfloat16]
WIDTHS = [(5, 5), (64, 64), (64, 33), (256, 256), (512, 512), (1000, 1000), (64, 700)]


@pytest.mark.gpu
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("widths", WIDTHS)
def test_soft_on_a_gpu(widths, kind):
    """Odd lengths, a sentence with nothing to see, windows over the edges, centres in and out of them."""
    check_soft(Trial((3, 2, 133, 161, *widths), kind, "cuda"), hides=True, window=(1, 20), centred=True)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shape", [(1, 1, 1, 1), (2, 1, 17, 33), (2, 3, 33, 17), (1, 2, 300, 1), (1, 2, 1, 300), (2, 2, 384, 256)]
)
@pytest.mark.parametrize("widths", [(64, 64), (512, 512)])
def test_lengths_on_a_gpu(shape, widths):
    check_soft(Trial((*shape, *widths), torch.bfloat16, "cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("widths", [(64, 64), (300, 600)])
def test_hard_on_a_gpu(widths, kind):
    """Places may differ from float64's where scores nearly tie, so gradients are compared for the places that were chosen."""
    check_hard(Trial((3, 2, 133, 161, *widths), kind, "cuda"), hides=True, window=(2, 20))


@pytest.mark.gpu
@pytest.mark.parametrize("widths", [(64, 64), (512, 512)])
def test_two_runs_are_the_same_to_the_last_bit(widths):
    trial = Trial((4, 2, 300, 500, *widths), torch.bfloat16, "cuda")
    first, last = trial.window(1, 100)

    def function(query, keys, values, centre):
        return flash_attention(query, keys, values, first=first, last=last, centre=centre, deviation=20.0, scale=trial.scale)[
            :2
        ]

    once, again = (trial.ours(function, trial.centre() * 0 + 9) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(once, again, strict=True))


@pytest.mark.gpu
def test_large_scores_and_long_sequences(monkeypatch):
    monkeypatch.setitem(CLOSE, torch.float32, 1e-4)  # scores of some hundreds have steps of 3e-5
    check_soft(Trial((1, 2, 300, 10_000, 64, 64), device="cuda", spread=8.0))


@pytest.mark.gpu
@pytest.mark.parametrize("value", [64, 300])
def test_peak_memory_grows_as_the_length_does(value):
    """Twice the length, twice the memory: a [target, source] tensor would be four times as large."""

    def peak(length):
        trial = Trial((1, 2, length, length, 64, value), torch.bfloat16, "cuda")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        trial.ours(lambda *parts: flash_attention(*parts, scale=trial.scale)[:2])
        return torch.cuda.max_memory_allocated() - before

    small, middle, large = (peak(16384 * factor) for factor in (1, 2, 4))
    assert large - middle < 2.2 * (middle - small)
