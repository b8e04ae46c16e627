"""Every selection against its definition in float64: weights, gradients, and what is drawn."""

import numpy as np
import pytest
import torch
from torch import nn

from regard.nn.attention import SELECTIONS, normalise
from regard.nn.attention.sparse import entmax, sparsemax

TEMPERATURES = (1.0, 0.4, 3.0)


def by_bisection(scores, alpha):
    """p = max((α - 1) e - τ, 0)^{1 / (α - 1)} with the τ for which Σ p = 1, by halving."""
    scaled = (alpha - 1) * scores
    low, high = scaled.max(-1, keepdims=True) - 1, scaled.max(-1, keepdims=True)
    for _ in range(60):
        middle = (low + high) / 2
        too_much = (np.maximum(scaled - middle, 0) ** (1 / (alpha - 1))).sum(-1, keepdims=True) > 1
        low, high = np.where(too_much, middle, low), np.where(too_much, high, middle)
    return np.maximum(scaled - low, 0) ** (1 / (alpha - 1))


def softmax(scores):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def best(scores):
    return (scores == scores.max(-1, keepdims=True)).astype(float)


# what is selected when nothing is learned; -inf: hidden
SELECTED = {
    "soft": softmax,
    "sparsemax": lambda scores: by_bisection(scores, 2.0),
    "entmax": lambda scores: by_bisection(scores, 1.5),
    "hard": best,
    "gumbel": best,
}


def test_every_selection_has_an_oracle():
    assert SELECTED.keys() == SELECTIONS.keys()


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("source", [1, 2, 13])
def test_weights_are_as_defined(name, source):
    visible = torch.rand(2, 1, 5, source) < 0.6
    visible[..., 0] = True
    for temperature, spread in [(one, spread) for one in TEMPERATURES for spread in (0.01, 1.0, 30.0)]:
        scores = spread * torch.randn(2, 3, 5, source, dtype=torch.float64)
        weights, choice = normalise(scores, ~visible, SELECTIONS[name](temperature).eval())
        hidden = torch.where(visible, scores / temperature, -torch.inf)
        np.testing.assert_allclose(weights.numpy(), SELECTED[name](hidden.numpy()), rtol=1e-8, atol=1e-10)
        assert choice is None


@pytest.mark.parametrize("function", [sparsemax, entmax])
def test_sparse_gradients(function):
    for spread in (0.1, 1.0, 3.0):
        scores = (spread * torch.randn(4, 7, dtype=torch.float64)).requires_grad_()
        assert torch.autograd.gradcheck(function, scores)


@pytest.mark.parametrize("name", SELECTIONS)
def test_nothing_visible_weighs_nothing_and_teaches_nothing(name):
    for temperature in TEMPERATURES:
        scores = torch.randn(2, 2, 3, 4, requires_grad=True)
        visible = torch.tensor([True, False])[:, None, None, None].expand(2, 1, 1, 4)
        weights, choice = normalise(scores, ~visible, SELECTIONS[name](temperature, softness=0.0))
        assert weights[1].eq(0).all()
        told = [] if choice is None else [choice.log_prob[1].sum(), choice.entropy[1].sum()]
        total = torch.stack([weights[1].sum(), *told]).sum()
        if total.requires_grad:
            assert torch.autograd.grad(total, scores)[0].eq(0).all()


@pytest.mark.parametrize("name", ["sparsemax", "entmax"])
def test_bfloat16_scores_give_exact_weights(name):
    """Sums of many sorted scores in bfloat16 were off by 5 parts in 100."""
    scores = torch.randn(20, 300).bfloat16()
    weights, _ = SELECTIONS[name]()(scores)
    np.testing.assert_allclose(weights.numpy(), SELECTED[name](scores.double().numpy()), atol=1e-5)


def drawn(name, scores, times, **options):
    """Many draws of the weights of one row of scores."""
    selection = SELECTIONS[name](**options).train()
    return normalise(scores.expand(times, 1, 1, -1), torch.zeros(1, 1, 1, len(scores), dtype=torch.bool), selection)


@pytest.mark.parametrize(("name", "tempers"), [("gumbel", False), ("hard", True)])
def test_places_are_drawn_as_often_as_they_should_be(name, tempers):
    """Gumbel's noise draws from softmax(e) whatever the temperature of its gradient; `hard` draws from softmax(e / τ)."""
    scores, temperature = torch.tensor([0.3, -1.0, 1.1, 0.0, -2.5], dtype=torch.float64), 2.0
    weights, _ = drawn(name, scores, 20_000, temperature=temperature, softness=0.0)
    assert weights.detach().sort(dim=-1).values[..., -1].eq(1).all()
    assert weights.detach().sort(dim=-1).values[..., :-1].eq(0).all()
    expected = softmax((scores / temperature if tempers else scores).numpy())
    np.testing.assert_allclose(weights.detach().mean(dim=(0, 1, 2)).numpy(), expected, atol=0.015)  # 4 deviations


def test_gumbel_learns_as_the_relaxed_softmax_does(monkeypatch):
    noise = torch.empty(3, 2, 4, 5, dtype=torch.float64).exponential_()
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda self: self.copy_(noise))
    scores, slope = torch.randn(3, 2, 4, 5, dtype=torch.float64, requires_grad=True), torch.randn(3, 2, 4, 5)
    weights, _ = SELECTIONS["gumbel"](temperature=0.7)(scores)
    relaxed = nn.functional.softmax((scores - noise.log()) / 0.7, dim=-1)
    assert weights.argmax(-1).equal(relaxed.argmax(-1))
    for ours, theirs in zip(*(torch.autograd.grad((way * slope).sum(), scores) for way in (weights, relaxed)), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_hard_attention_tells_how_likely_its_draw_was():
    """log p of what was drawn and H = -Σ p log p, each summed over the heads; hidden places are never drawn."""
    scores, visible = torch.randn(6, 2, 4, 5, dtype=torch.float64), torch.tensor([True, False, True, True, False])
    weights, choice = normalise(scores, ~visible.expand(6, 1, 1, 5), SELECTIONS["hard"](temperature=1.7, softness=0.0))
    chances = softmax(torch.where(visible, scores / 1.7, -torch.inf).numpy())
    places = weights.argmax(-1)
    for batch, step in np.ndindex(6, 4):
        rows = [chances[batch, head, step] for head in range(2)]
        log_prob = sum(np.log(row[places[batch, head, step]]) for head, row in enumerate(rows))
        entropy = -sum(chance * np.log(chance) for row in rows for chance in row if chance > 0)
        assert choice.log_prob[batch, step].item() == pytest.approx(log_prob)
        assert choice.entropy[batch, step].item() == pytest.approx(entropy)


def test_the_share_of_sentences_that_hard_attention_reads_softly():
    scores = torch.randn(5, dtype=torch.float64)
    for softness in (0.0, 0.3, 1.0):
        weights, choice = drawn("hard", scores, 4000, softness=softness)
        softly = (weights > 0).all(dim=-1)[:, 0, 0]
        assert softly.double().mean().item() == pytest.approx(softness, abs=0.03)  # 4 deviations
        torch.testing.assert_close(weights[softly], scores.softmax(-1).expand_as(weights[softly]))
        assert choice.log_prob[softly].eq(0).all()
        assert choice.log_prob[~softly].lt(0).all()


def test_log_prob_teaches_hard_attention_the_gradient_of_the_expected_reward():
    """∇ Σ_j p_j r_j = E[r ∇ log p], the mean over draws; a constant taken off every reward changes nothing but the noise."""
    scores, rewards = torch.tensor([0.3, -0.5, 0.9], dtype=torch.float64), torch.tensor([-1.0, -3.0, -2.0], dtype=torch.float64)
    scores.requires_grad_()
    exact = torch.autograd.grad((scores.softmax(-1) * rewards).sum(), scores)[0]
    weights, choice = drawn("hard", scores, 20_000, softness=0.0)
    reward = (weights.detach() * rewards).sum(-1).squeeze(1)
    for baseline in (0.0, -2.0):
        estimate = torch.autograd.grad(((reward - baseline) * choice.log_prob).mean(), scores, retain_graph=True)[0]
        torch.testing.assert_close(estimate, exact, rtol=0, atol=0.04)  # 4 deviations of 20,000 rewards
