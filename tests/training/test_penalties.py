"""Every penalty against a loop; the gradient of hard attention against that of the expected loss, over all it can draw."""

import itertools

import pytest
import torch
from tiny import VOCABULARY, tiny
from torch.nn.functional import one_hot

from regard.data.batching import Batch, Column, reading
from regard.errors import UserError
from regard.models import generator
from regard.models.decoders.context import CONTEXTS
from regard.models.penalties import ACTIVATIONS, PENALTIES, Evidence
from regard.nn.attention import selections
from regard.training.objective import Objective

SOURCE, LENGTHS = torch.tensor([[4, 5, 3], [6, 3, 0]]), torch.tensor([3, 2])
WORDS, TARGET = torch.tensor([[2, 7, 8], [2, 4, 0]]), torch.tensor([[7, 8, 3], [4, 3, 0]])
LINKS = torch.tensor([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
EXAMPLES = Batch({**reading(SOURCE, LENGTHS, target=TARGET).columns, "links": Column(LINKS, times=2)})


def coverage(weights, target, source, links):
    total = 0.0
    for head in weights:
        for i, j in itertools.product(range(target), range(source)):
            total += min(head[i, j], sum(head[k, j] for k in range(i))) / len(weights)
    return total


def doubly_stochastic(weights, target, source, links):
    return sum((1 - sum(head[i, j] for i in range(target))) ** 2 for head in weights for j in range(source)) / len(weights)


def guided(weights, target, source, links):
    mean = weights.mean(0)
    pairs = itertools.product(range(target), range(source))
    return -sum(links[i, j] * mean[i, j].log() for i, j in pairs if links[i, j] > 0)


# of one sentence: weights [heads target source], how many of its steps and places are no padding, links
LOOPS = {"coverage": coverage, "doubly_stochastic": doubly_stochastic, "guided": guided}


def in_a_loop(name, weights, lengths=LENGTHS, links=LINKS):
    rows = zip(weights.double(), (TARGET != 0).sum(1).tolist(), lengths.tolist(), links.double(), strict=True)
    return sum(LOOPS[name](*row) for row in rows)


def test_every_penalty_has_an_oracle():
    assert LOOPS.keys() == PENALTIES.keys()


def evidence(weights, links=LINKS):
    visible = torch.arange(3) < LENGTHS[:, None]
    return Evidence(weights, TARGET != 0, visible, links)


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("name", PENALTIES)
def test_a_penalty_is_its_loop_and_so_is_its_gradient(name, heads):
    """Steps of padding are not counted; places of padding have no weight."""
    visible = torch.arange(3) < LENGTHS[:, None, None, None]
    scores = torch.randn(2, heads, 3, 3, requires_grad=True)
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    ours, theirs = PENALTIES[name](evidence(weights)), in_a_loop(name, weights)
    torch.testing.assert_close(ours.double(), theirs)
    torch.testing.assert_close(*(torch.autograd.grad(way, scores, retain_graph=True)[0] for way in (ours, theirs)))


def test_a_link_that_nothing_falls_on_costs_much_and_breaks_nothing():
    weights = torch.eye(3).roll(1, 0).expand(2, 1, 3, 3).clone().requires_grad_()
    cost = PENALTIES["guided"](evidence(weights))
    assert cost > 10
    assert torch.autograd.grad(cost, weights)[0].isfinite().all()


def test_guiding_needs_links():
    with pytest.raises(UserError, match=r"guided needs given alignments.*data\.train\.alignment"):
        PENALTIES["guided"](evidence(torch.rand(2, 1, 3, 3), links=None))


def decoder(context, **attention):
    return {"cell": "gru", "context": context, "attention": {"score": "general", **attention}}


@pytest.mark.parametrize("context", [name for name in CONTEXTS if name != "none"])
@pytest.mark.parametrize("name", PENALTIES)
def test_training_adds_a_penalty_at_its_rate(name, context):
    model = tiny(decoder(context, heads=2), layers=1)
    weights = model.teacher_forced(EXAMPLES, WORDS, return_weights=True).weights
    plain, penalised = (Objective(model, 0.1, penalties=given)(EXAMPLES).total for given in ({}, {name: 0.3}))
    torch.testing.assert_close((penalised - plain).double(), 0.3 * in_a_loop(name, weights), rtol=1e-4, atol=1e-4)


def test_penalties_add_up_and_an_unknown_one_is_refused():
    model = tiny(decoder("after_cell"), layers=1)
    plain = Objective(model, 0.0)(EXAMPLES).total
    each = [Objective(model, 0.0, penalties={name: 0.5})(EXAMPLES).total - plain for name in PENALTIES]
    together = Objective(model, 0.0, penalties=dict.fromkeys(PENALTIES, 0.5))(EXAMPLES).total
    torch.testing.assert_close(together - plain, torch.stack(each).sum(), rtol=1e-4, atol=1e-4)
    with pytest.raises(UserError, match="coverage"):
        Objective(model, 0.0, penalties={"covrage": 1.0})


ONE = reading(torch.tensor([[4, 3]]), torch.tensor([2]), target=torch.tensor([[7, 8, 3]]))


def drawing(path):
    """Instead of what is best: the places of this path, however many are drawn at once."""
    left = iter(path)

    def best(scores):
        places = torch.tensor([next(left) for _ in range(scores.shape[2])])
        return one_hot(places, scores.shape[-1]).to(scores.dtype).view_as(scores)

    return best


@pytest.mark.parametrize("options", [{}, {"coverage": True}], ids=["", "coverage"])
@pytest.mark.parametrize("context", [name for name in CONTEXTS if name != "none"])
def test_hard_attention_learns_the_gradient_of_the_expected_loss(context, options, monkeypatch):
    """Σ_paths p(path) loss(path) over all that three steps can draw of two places, and the mean of what training minimises."""
    monkeypatch.setattr(generator, "FORGET", 0.0)
    model = tiny(decoder(context, selection="hard", softness=0.0, **options), layers=1, scale=3.0).double().train()
    model.decoder.reward_baseline.copy_(torch.randn(VOCABULARY))  # whatever it is
    exact, estimate, chances = 0.0, 0.0, 0.0
    for path in itertools.product(range(2), repeat=3):
        monkeypatch.setattr(selections, "best", drawing(path))
        steps = model.teacher_forced(ONE, torch.tensor([[2, 7, 8]]))
        loss, chance = model.decoder.loss(steps, ONE["target"].values), steps.choice.log_prob.sum().exp()
        exact, chances = exact + chance * loss, chances + chance.item()
        estimate = estimate + chance.detach() * (loss + model.reinforce(0.0, steps, ONE))
    assert chances == pytest.approx(1)
    learned = list(model.parameters())
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    for ours, theirs in zip(*(torch.autograd.grad(way, learned, **options) for way in (estimate, exact)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)  # rewards are float32


def test_steps_of_padding_teach_hard_attention_nothing():
    """Σ over real steps of -(r - b) log p - λ H."""
    model = tiny(decoder("after_cell", selection="hard", softness=0.0), layers=1).train()
    usual, steps = model.decoder.reward_baseline.copy_(torch.randn(VOCABULARY)), model.teacher_forced(EXAMPLES, WORDS)
    rewards, expected = model.decoder.log_probs(steps, TARGET), 0.0
    for row, length in enumerate((3, 2)):
        for i in range(length):
            reward = rewards[row, i] - usual[TARGET[row, i]]
            expected -= reward * steps.choice.log_prob[row, i] + 0.7 * steps.choice.entropy[row, i]
    before = usual.clone()
    torch.testing.assert_close(model.eval().reinforce(0.7, steps, EXAMPLES), expected)
    assert usual.equal(before)  # judging moves nothing


def test_the_usual_reward_of_a_word_follows_the_last_and_is_kept_with_the_model():
    model = tiny(decoder("into_cell", selection="hard"), layers=1).train()
    model.decoder.reward_baseline.fill_(-5.0)
    with torch.random.fork_rng():
        rewards = model.decoder.log_probs(model.teacher_forced(EXAMPLES, WORDS), TARGET)
    Objective(model, 0.0)(EXAMPLES).total.backward()
    last = {word: rewards[word == TARGET].mean().item() for word in (7, 8, 3, 4)}
    expected = [0.9 * -5.0 + 0.1 * last.get(word, -5.0) for word in range(VOCABULARY)]
    torch.testing.assert_close(model.state_dict()["decoder.reward_baseline"], torch.tensor(expected))


def test_a_model_of_any_precision_has_a_usual_reward():
    model = tiny(decoder("after_cell", selection="hard"), layers=1).double()
    Objective(model, 0.0).train()(EXAMPLES).total.backward()
    assert model.decoder.reward_baseline[7] < 0


ACTIVATION_LOOPS = {
    "activation": lambda outputs: sum(float(h @ h) / len(h) for h in outputs),
    "activation_change": lambda outputs: sum(
        float((h - before) @ (h - before)) / len(h) for before, h in itertools.pairwise(outputs)
    ),
}


def test_every_activation_penalty_has_an_oracle():
    assert ACTIVATION_LOOPS.keys() == ACTIVATIONS.keys()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_penalty_is_its_loop_in_a_model_without_attention_too(name):
    for section in (decoder("after_cell"), {"cell": "gru", "context": "none", "attention": None}):
        model = tiny(section, layers=1)
        outputs = model.teacher_forced(EXAMPLES, WORDS).outputs.detach().double()
        loss = Objective(model, 0.1, penalties={name: 0.3})(EXAMPLES)
        torch.testing.assert_close(loss.total, sum(loss.parts.values()))
        rows = zip(outputs, (TARGET != 0).sum(1).tolist(), strict=True)
        expected = 0.3 * sum(ACTIVATION_LOOPS[name](row[:length]) for row, length in rows)
        assert loss.parts[name].item() == pytest.approx(expected, rel=1e-4)
