"""A tagger, a classifier and language models: their losses against plainly written ones, and the laws."""

import math
from itertools import pairwise, product

import pytest
import torch
from citizens import BODIES, LABELS, SOURCES, TAGS, TEXTS, WHOLE, batch_of, labeller, language_model
from test_decoder_alone import plain_model
from torch.nn import functional

from regard.data.fields import FIELDS
from regard.errors import RecipeError, UserError
from regard.models import build, configure
from regard.models.encoders import ENCODERS
from regard.models.generator import shifted
from regard.models.interface import LossOptions
from regard.models.language_model import BODIES as ALL_BODIES
from regard.nn.pooling import POOLINGS

END, START = 3, 2
SMOOTHED = LossOptions(label_smoothing=0.2)
SHAPES = [("tagger", name) for name in BODIES] + [("classifier", name) for name in BODIES]


def test_every_encoder_and_every_body_is_tried():
    assert set(BODIES) == set(ENCODERS)
    assert {section["kind"] for section in TEXTS.values()} == set(ALL_BODIES)


def looked(states, pool):
    """Σ α_j h_j with α = softmax(v · tanh(W q + U h_j)), one state after the other."""
    score, query = pool.attention.score, pool.query[0, 0]
    inner = [score.project_query.weight @ query + score.project_key.weight @ state for state in states]
    weights = torch.stack([score.score_vector[0] @ one.tanh() for one in inner]).softmax(dim=0)
    return sum(weight * state for weight, state in zip(weights, states, strict=True))


POOLED = {
    "Mean": lambda states, pool: states.mean(0),
    "Max": lambda states, pool: states.max(0).values,
    "Last": lambda states, pool: states[-1],
    "Ends": lambda states, pool: torch.cat([states[0], states[-1]]),
    "AttentionPooling": looked,
}


def plain_labels(model, row):
    """log p(label) of each position of one text alone, or of the whole: the output layer by hand."""
    tokens = torch.tensor([[*SOURCES[row], END]])
    memory = model.encoder(tokens, torch.tensor([tokens.shape[1]]))
    states = memory.states[0, memory.visible[0]]
    if model.writes == "label":
        states = POOLED[type(model.pool).__name__](states, model.pool)[None]
    else:
        states = states[: len(SOURCES[row])]
    return states @ model.output.weight.T + model.output.bias, torch.tensor(
        TAGS[row] if model.writes == "tags" else [WHOLE[row]]
    )


@pytest.mark.parametrize("options", [LossOptions(), SMOOTHED], ids=["plain", "smoothed"])
@pytest.mark.parametrize(("kind", "encoder"), SHAPES)
def test_the_loss_of_a_labeller_is_pytorchs(kind, encoder, options):
    """Value and all gradients of a padded batch equal those of rows alone."""
    model = labeller(kind, encoder)
    loss = model.loss(batch_of(kind), options)
    expected, number = 0, 0
    for row in range(3):
        logits, truth = plain_labels(model, row)
        expected = expected + functional.cross_entropy(
            logits, truth - 1, reduction="sum", label_smoothing=options.label_smoothing
        )
        number += len(truth)
    assert list(loss.parts) == ["loss"]
    assert int(loss.number) == number == (8 if kind == "tagger" else 3)
    torch.testing.assert_close(loss.total, expected)
    torch.testing.assert_close(loss.parts["loss"], expected.detach())
    parameters = list(model.parameters())
    for ours, plain in zip(torch.autograd.grad(loss.total, parameters), torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
        assert plain.abs().sum() > 0


@pytest.mark.parametrize("encoder", BODIES)
@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_classifier_reads_the_whole_by_its_pooling(pooling, encoder):
    model = labeller("classifier", encoder, pooling=pooling)
    found = model.predict(batch_of("classifier"))
    wide = model.predict(batch_of("classifier", multiple=(8, 8)))
    for row in range(3):
        logits, _ = plain_labels(model, row)
        torch.testing.assert_close(found[row], logits.softmax(dim=-1))
        torch.testing.assert_close(wide[row], found[row])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["tagger", "classifier"])
def test_rare_labels_count_more_where_weights_balance_them(kind, smoothing):
    """w = N / (C n): a row's loss times the weight of its label; without smoothing it is PyTorch's weighted loss."""
    model, counts = labeller(kind, "recurrent", class_weights="balanced"), [10, 5, 4, 1]
    model.learn_from({model.writes: FIELDS[model.writes](list("abcd"), counts)})
    weights = torch.tensor([20 / (4 * count) for count in counts])
    torch.testing.assert_close(model.class_weights, weights)
    expected = 0
    for row in range(3):
        logits, truth = plain_labels(model, row)
        for one, label in zip(logits, truth - 1, strict=True):
            each = functional.cross_entropy(one[None], label[None], label_smoothing=smoothing)
            expected = expected + weights[label] * each
            if not smoothing:
                torch.testing.assert_close(
                    weights[label] * each, functional.cross_entropy(one[None], label[None], weights, reduction="sum")
                )
    loss = model.loss(batch_of(kind, multiple=(8, 8)), LossOptions(smoothing))
    torch.testing.assert_close(loss.total, expected)
    assert "class_weights" in model.state_dict()
    assert "class_weights" not in labeller(kind, "recurrent").state_dict()


def plain_paths(model, row):
    """The probability of every sequence of tags of one text alone, by counting them all."""
    logits, chain = plain_labels(model, row)[0].detach(), model.chain
    scores = {}
    for path in product(range(LABELS), repeat=len(logits)):
        score = chain.begins[path[0]] + chain.finishes[path[-1]] + sum(logits[at, tag] for at, tag in enumerate(path))
        scores[path] = (score + sum(chain.transitions[one, other] for one, other in pairwise(path))).item()
    total = math.log(sum(map(math.exp, scores.values())))
    return {path: math.exp(score - total) for path, score in scores.items()}


@pytest.mark.parametrize("encoder", ["recurrent", "bytenet"])
def test_a_tagger_with_a_crf_chooses_among_all_sequences_of_tags(encoder):
    model = labeller("tagger", encoder, crf=True)
    found, loss = model.label(batch_of("tagger", multiple=(4, 8))), model.loss(batch_of("tagger", multiple=(4, 8)))
    log_probs, total = model.log_probs(batch_of("tagger")), 0.0
    for row, tokens in enumerate(SOURCES):
        chances, number = plain_paths(model, row), len(tokens)
        best = max(chances, key=chances.get)
        assert tuple(found.best[row, :number].tolist()) == best
        assert found.log_prob[row].exp().item() == pytest.approx(chances[best], rel=1e-4)
        for at, tag in product(range(number), range(LABELS)):
            expected = sum(chance for path, chance in chances.items() if path[at] == tag)
            assert found.chances[row, at, tag].item() == pytest.approx(expected, abs=1e-5)
        truth = chances[tuple(tag - 1 for tag in TAGS[row])]
        assert log_probs[row].exp().item() == pytest.approx(truth, rel=1e-4)
        total -= math.log(truth)
    assert loss.total.item() == pytest.approx(total, rel=1e-4)
    assert int(loss.number) == 8
    loss.total.backward()
    assert not [name for name, one in model.named_parameters() if one.grad is None or one.grad.eq(0).all()]


def test_what_goes_with_tags_one_by_one_is_refused_with_a_crf():
    with pytest.raises(RecipeError, match="class_weights are for tags that are chosen one by one"):
        configure({"kind": "tagger", "crf": True, "class_weights": "balanced"})
    with pytest.raises(UserError, match=r"set training\.label_smoothing=0"):
        labeller("tagger", "recurrent", crf=True).part_names(SMOOTHED)


def test_a_pooling_that_looks_at_known_places_says_so():
    look = {"pooling": "attention", "attention": {"score": "location", "longest": 7}}
    assert labeller("classifier", "recurrent", **look).limits.source == (7, "model.attention.longest")
    with pytest.raises(RecipeError, match="attention is for pooling=attention"):
        configure({"kind": "classifier", "pooling": "mean", "attention": {"score": "dot"}})
    for option in ({"scope": "local_m"}, {"coverage": True}, {"selection": "hard"}):
        with pytest.raises(RecipeError, match="a learned query has no place"):
            configure({"kind": "classifier", "pooling": "attention", "attention": option})


@pytest.mark.parametrize(("kind", "encoder"), SHAPES)
def test_padding_reaches_no_label(kind, encoder):
    """A row alone, beside longer ones, and in a batch with rows and columns that hold nothing."""
    model = labeller(kind, encoder)
    together = model.predict(batch_of(kind))
    wide = model.predict(batch_of(kind, multiple=(8, 8)))
    torch.testing.assert_close(together.sum(dim=-1), torch.ones(together.shape[:2]))
    for row, tokens in enumerate(SOURCES):
        positions = len(tokens) if kind == "tagger" else 1
        alone = model.predict(batch_of(kind, [row]))[0, :positions]
        assert alone.shape == (positions, LABELS)
        torch.testing.assert_close(together[row, :positions], alone)
        torch.testing.assert_close(wide[row, :positions], alone)
    for options in (LossOptions(), SMOOTHED):
        one, other = model.loss(batch_of(kind), options), model.loss(batch_of(kind, multiple=(8, 8)), options)
        torch.testing.assert_close(one.total, other.total)
        assert one.number == other.number


def test_what_mixes_experts_says_what_they_cost():
    experts = {**BODIES["transformer"], "experts": {"number": 3, "every": 1}}
    model = build(configure({"kind": "tagger", "encoder": experts}), 9, 4).train()
    loss = model.loss(batch_of("tagger"))
    assert list(loss.parts) == ["loss", "experts"] == list(model.part_names(LossOptions()))
    assert loss.parts["experts"] > 0
    torch.testing.assert_close(loss.total, loss.parts["loss"] + loss.parts["experts"])


def test_a_labeller_refuses_what_is_for_sequences():
    model = labeller("tagger", "recurrent")
    for options in (LossOptions(scheduled_sampling=0.1), LossOptions(penalties={"coverage": 1.0})):
        with pytest.raises(UserError, match="for models that write a sequence"):
            model.part_names(options)


def plain_gru(decoder, tokens):
    """Logits after each word: torch.nn.GRU from zero, tanh(W s + b), the output layer."""
    oracle = torch.nn.GRU(5, 4, 2, batch_first=True)
    for parameter, weight in zip(
        oracle.parameters(), (weight for cell in decoder.cells for weight in cell.weights), strict=True
    ):
        parameter.data = weight.data
    states, _ = oracle(decoder.embed.weight[torch.tensor([tokens])])
    hidden = torch.tanh(states[0] @ decoder.join.weight.T + decoder.join.bias)
    return hidden @ decoder.output.weight.T + decoder.output.bias


def plain_texts(model, tokens):
    """log p(next word) after START and after each of these words."""
    if isinstance(model.decoder, ALL_BODIES["recurrent"]):
        return plain_gru(model.decoder, [START, *tokens]).log_softmax(dim=-1)
    return plain_model(model.decoder, torch.tensor([END, START, *tokens]), prefix=0)[1:]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("body", ["recurrent", "transformer"])
def test_the_loss_of_a_language_model_is_that_of_each_next_word(body, smoothing):
    model = language_model(body)
    loss = model.loss(batch_of("language_model"), LossOptions(label_smoothing=smoothing))
    expected = torch.tensor(0.0)
    for tokens in SOURCES:
        log_probs = plain_texts(model, tokens)
        for place, word in enumerate([*tokens, END]):
            expected = expected - (1 - smoothing) * log_probs[place, word] - smoothing * log_probs[place].mean()
    torch.testing.assert_close(loss.total, expected)
    assert int(loss.number) == sum(len(tokens) + 1 for tokens in SOURCES)
    wide = model.loss(batch_of("language_model", multiple=(4, 8)), LossOptions(label_smoothing=smoothing))
    torch.testing.assert_close(wide.total, expected)
    assert wide.number == loss.number


def logits_of(model, batch):
    return model(batch, shifted(batch["target"].values))


@pytest.mark.parametrize("body", TEXTS)
def test_a_language_model_steps_as_it_is_forced(body):
    model, batch = language_model(body), batch_of("language_model")
    words = shifted(batch["target"].values)
    step, state = model.start(model.encode(batch))
    for place in range(words.shape[1]):
        one = step(words[:, place], state)
        state = one.state
        written = batch["target"].values[:, place] != 0
        torch.testing.assert_close(one.logits[written], logits_of(model, batch)[written, place])


@pytest.mark.parametrize("body", TEXTS)
def test_neither_future_nor_padding_reaches_a_word(body):
    model, batch = language_model(body), batch_of("language_model")
    together = logits_of(model, batch)
    wide = logits_of(model, batch_of("language_model", multiple=(4, 8)))
    for row, tokens in enumerate(SOURCES):
        alone = logits_of(model, batch_of("language_model", [row]))[0]
        torch.testing.assert_close(together[row, : len(tokens) + 1], alone)
        torch.testing.assert_close(wide[row, : len(tokens) + 1], alone)
    words = shifted(batch["target"].values)
    changed = words.clone()
    changed[0, 3:] = changed[0, 3:] % 5 + 4
    before, after = model(batch, words), model(batch, changed)
    torch.testing.assert_close(before[0, :3], after[0, :3])
    assert not torch.allclose(before[0, 3:], after[0, 3:])


@pytest.mark.parametrize("body", TEXTS)
def test_hypotheses_of_a_text_share_its_beginning(body):
    from regard.nn.state import repeat_rows

    model, words = language_model(body), torch.tensor([4, 5, 6])
    step, state = model.start(model.nothing(1))
    other, others = model.start(model.nothing(3))
    torch.testing.assert_close(step(words, repeat_rows(state, 3)).logits, other(words, others).logits)


def test_what_a_language_model_cannot_be_is_said():
    with pytest.raises(RecipeError, match="two_way_source"):
        configure({"kind": "language_model", "decoder": {**BODIES["transformer"], "two_way_source": True}})
    with pytest.raises(RecipeError, match=r"model\.decoder\.attention"):
        configure({"kind": "language_model", "decoder": {"kind": "recurrent", "attention": {"score": "dot"}}})
    with pytest.raises(RecipeError, match="pooling"):
        configure({"kind": "classifier", "pooling": "mena"})
    with pytest.raises(UserError, match="no attention"):
        language_model("transformer").part_names(LossOptions(penalties={"coverage": 1.0}))
