"""Copying against the distribution written out word by word in float64: values, gradients, what can be written at all."""

import math

import pytest
import torch

from regard.nn import cross_entropy
from regard.nn.copying import COPIES, NOTHING, Copying, copying_loss, extended_logits
from regard.nn.kernels.layers import entropy

VOCABULARY, SIZE, EXTENDED = 7, 4, 10
WORDS = torch.tensor(
    [
        [5, 7, 5, 7, 2, 9],  # known words and words beyond the vocabulary, some of them twice
        [8, 6, NOTHING, NOTHING, 4, 7],  # the last two are not visible
        [NOTHING, 5, 6, 7, 8, 9],  # nothing but the end mark is visible
    ]
)
VISIBLE = torch.arange(6) < torch.tensor([6, 4, 1])[:, None]
CAN_WRITE = [{*range(VOCABULARY), 7, 9}, {*range(VOCABULARY), 8}, {*range(VOCABULARY)}]
TARGET = torch.tensor([[5, 7, 9, 1, 3], [8, 6, 4, 0, 0], [5, 0, 0, 0, 0]])  # the second row's 4 is only generated


def case(name, dtype=torch.float64, scale=1.0):
    copy = COPIES[name](SIZE, 3).to(dtype)
    layer = torch.nn.Linear(SIZE, VOCABULARY).to(dtype)
    outputs, states = scale * torch.randn(3, 5, SIZE, dtype=dtype), torch.randn(3, 6, 3, dtype=dtype)
    return copy, layer, outputs.requires_grad_(), states.requires_grad_()


def copying_of(copy, outputs, states):
    return copy(outputs, copy.prepare(states), VISIBLE, WORDS, EXTENDED)


@torch.no_grad()
def brute_force(name, copy, layer, outputs, states):
    """p of every word at every step, and the part of it that is generated: the papers' equations, a word at a time."""
    probabilities, generated = torch.zeros(3, 5, EXTENDED).double(), torch.zeros(3, 5, VOCABULARY).double()
    for row in range(3):
        positions = [j for j in range(6) if VISIBLE[row, j] and WORDS[row, j] != NOTHING]
        for step in range(5):
            output = outputs[row, step].double()
            logits = layer.weight.double() @ output + layer.bias.double()
            keys = [torch.tanh(copy.project_key.weight.double() @ states[row, j].double()) for j in positions]
            scores = [math.exp(key @ output) for key in keys]
            generate = logits.exp()
            if name == "gated":
                odds = copy.project_gate.weight.double()[0] @ output + copy.project_gate.bias.double()[0]
                share = 1 / (1 + math.exp(-odds)) if positions else 1.0
                scores = [(1 - share) * score / sum(scores) for score in scores]
                generate = share * generate / generate.sum()
            generated[row, step] = generate / (generate.sum() + sum(scores))
            probabilities[row, step, :VOCABULARY] = generated[row, step]
            for j, score in zip(positions, scores, strict=True):
                probabilities[row, step, WORDS[row, j]] += score / (generate.sum() + sum(scores))
    return probabilities, generated


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_distribution_is_that_of_the_equations(name, dtype):
    parts = case(name, dtype)
    copy, layer, outputs, states = parts
    with torch.no_grad():
        ours = extended_logits(layer(outputs), copying_of(copy, outputs, states))
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.softmax(-1).double(), brute_force(name, *parts)[0], rtol=1e-5, atol=1e-7)
        if name == "gated":  # log p itself
            torch.testing.assert_close(ours.exp().sum(-1), torch.ones(3, 5, dtype=dtype))


@pytest.mark.parametrize("name", COPIES)
def test_what_can_be_written(name):
    """Words outside the vocabulary by the sentences that have them alone; padding and the end mark are not copied."""
    copy, layer, outputs, states = case(name)
    found = extended_logits(layer(outputs), copying_of(copy, outputs, states)).isfinite()
    for row, words in enumerate(CAN_WRITE):
        assert found[row].tolist() == [[word in words for word in range(EXTENDED)]] * 5


def test_a_word_that_is_generated_and_copied_is_added_up():
    """By hand: logits 0 for two words, scores log 2 and log 3 on the second one and log 5 on a word unknown."""
    scores = torch.tensor([[[2.0, 3.0, 5.0]]]).log()
    words = torch.tensor([[1, 1, 2]])
    added = extended_logits(torch.zeros(1, 1, 2), Copying(scores, None, words, 3))
    torch.testing.assert_close(added.softmax(-1), torch.tensor([[[1 / 12, 6 / 12, 5 / 12]]]))
    gated = extended_logits(torch.zeros(1, 1, 2), Copying(scores, torch.tensor([[math.log(3.0)]]), words, 3))
    torch.testing.assert_close(gated.exp(), torch.tensor([[[0.75 / 2, 0.75 / 2 + 0.25 / 2, 0.25 / 2]]]))


@pytest.fixture(params=["the wanted rows", "all rows, as on a GPU"])
def kept(request, monkeypatch):
    monkeypatch.setattr(entropy, "applies", lambda inputs: request.param.startswith("all"))


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [1, 14, 1 << 20])
def test_the_loss_is_that_of_the_distribution(name, smoothing, chunk, monkeypatch, kept):
    monkeypatch.setattr(cross_entropy, "CHUNK", {"cpu": chunk})
    parts = case(name)
    copy, layer, outputs, states = parts
    ours = copying_loss(outputs, layer, TARGET, copying_of(copy, outputs, states), 0, smoothing)
    wanted = TARGET != 0
    probabilities, generated = brute_force(name, *parts)
    truth = probabilities.gather(2, TARGET[..., None]).squeeze(-1)[wanted].log()
    expected = -((1 - smoothing) * truth + smoothing * generated[wanted].log().mean(-1)).sum()
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients(name, smoothing, monkeypatch, kept):
    monkeypatch.setattr(cross_entropy, "CHUNK", {"cpu": 14})
    copy, layer, outputs, states = case(name)
    leaves = (outputs, states, *layer.parameters(), *copy.parameters())

    def loss(outputs, states, *_):
        return copying_loss(outputs, layer, TARGET, copying_of(copy, outputs, states), 0, smoothing)

    assert torch.autograd.gradcheck(loss, leaves, fast_mode=True)


@pytest.mark.parametrize("name", COPIES)
def test_gradients_of_the_whole_distribution(name):
    """As training by risk or reinforcement needs them; finite where a sentence cannot write a word."""
    copy, layer, outputs, states = case(name)
    some = torch.tensor([sorted(words)[-1] for words in CAN_WRITE])[:, None, None].expand(3, 5, 1)

    def log_prob(outputs, states, *_):
        return extended_logits(layer(outputs), copying_of(copy, outputs, states)).log_softmax(-1).gather(2, some)

    assert torch.autograd.gradcheck(log_prob, (outputs, states, *layer.parameters(), *copy.parameters()), fast_mode=True)


@pytest.mark.parametrize("name", COPIES)
def test_very_unlikely_words_stay_finite(name, kept):
    copy, layer, outputs, states = case(name, torch.float32)
    copy.project_key.weight.data.mul_(1e3)  # tanh saturates at ±1
    big = (200 * outputs.sign()).detach().requires_grad_()  # scores up to ±800, logits of the same kind
    loss = copying_loss(big, layer, TARGET, copying_of(copy, big, states), 0, 0.1)
    assert loss.isfinite()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, [big, *copy.parameters(), layer.weight]))
    unlikely = torch.tensor([[[0.0, -300.0, -305.0]]])
    found = extended_logits(torch.zeros(1, 1, 2), Copying(unlikely, None, torch.tensor([[1, 2, 2]]), 3))
    torch.testing.assert_close(
        found.log_softmax(-1)[0, 0, 2], torch.tensor(-300.0 + math.log1p(math.exp(-5.0)) - math.log(3.0))
    )


def test_all_logits_are_never_saved():
    """Nor is any tensor over positions, source and vocabulary: what is kept has a row a position or a row a word."""
    copy, _, outputs, states = case("added")
    layer = torch.nn.Linear(SIZE, 1000).double()
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor):
        copying_loss(outputs, layer, TARGET, copying_of(copy, outputs, states), 0, 0.1)
    assert max(sizes) <= 1000 * SIZE


@pytest.mark.parametrize("name", COPIES)
def test_nothing_but_padding_costs_nothing(name):
    copy, layer, outputs, states = case(name)
    loss = copying_loss(outputs, layer, torch.zeros_like(TARGET), copying_of(copy, outputs, states), 0, 0.1)
    assert loss.item() == 0
    assert torch.autograd.grad(loss, outputs)[0].eq(0).all()


@pytest.mark.parametrize("name", COPIES)
def test_autocast_keeps_the_sums_wide(name):
    copy, layer, outputs, states = case(name, torch.float32)
    plain = copying_loss(outputs, layer, TARGET, copying_of(copy, outputs, states), 0, 0.1)
    with torch.autocast("cpu", torch.bfloat16):
        loss = copying_loss(outputs, layer, TARGET, copying_of(copy, outputs, states), 0, 0.1)
        assert extended_logits(layer(outputs), copying_of(copy, outputs, states)).dtype == torch.float32
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, plain, rtol=2e-2, atol=0)
    loss.backward()
    assert layer.weight.grad.dtype == torch.float32
