"""A tagger, a classifier and language models: their losses against plainly written ones, and the laws."""

import pytest
import torch
from citizens import BODIES, LABELS, SOURCES, TAGS, TEXTS, WHOLE, batch_of, labeller, language_model
from test_decoder_alone import plain_model
from torch.nn import functional

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


def plain_labels(model, row):
    """log p(label) of each position of one text alone, or of the whole: the output layer by hand."""
    tokens = torch.tensor([[*SOURCES[row], END]])
    memory = model.encoder(tokens, torch.tensor([tokens.shape[1]]))
    states = memory.states[0, memory.visible[0]]
    if model.writes == "label":
        states = {"mean": states.mean(0), "max": states.max(0).values}[model.pool.__name__.removesuffix("_over")][None]
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


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_classifier_reads_the_whole_by_its_pooling(pooling):
    model = labeller("classifier", "recurrent", pooling=pooling)
    found = model.predict(batch_of("classifier"))
    for row in range(3):
        logits, _ = plain_labels(model, row)
        torch.testing.assert_close(found[row], logits.softmax(dim=-1))


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
