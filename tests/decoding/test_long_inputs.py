"""Texts beyond the places that a model knows: that text alone fails, by its index, and outputs end where places end."""

import pytest
import torch

from regard.data.batching import reading
from regard.data.fields import texts
from regard.data.tokenizers import END, train_tokenizer
from regard.decoding.generator import TrainedGenerator
from regard.decoding.sampling import Sampling
from regard.errors import InputError, UserError
from regard.models import build, configure
from regard.models.directory import Bundle
from regard.models.limits import Limit, Limits
from regard.recipe import Decoding, Tokenizer

SIDE = {"embedding_size": 8, "hidden_size": 8, "layers": 1}
STACK = {"hidden_size": 8, "feedforward_size": 16, "layers": 1, "dropout": 0.0}
HEADS = {"heads": 2}
CONVOLUTIONAL = {
    "encoder": {"kind": "convolutional", "longest": 6, **SIDE}, "decoder": {"kind": "convolutional", "longest": 9, **SIDE}
}  # fmt: skip
ALONE = {"kind": "decoder_alone", "positions": "learned", "longest": 9, "attention": HEADS, **STACK}
RECURRENT = {"embedding_size": 8, "hidden_size": 8}
LOCATION = {"score": "location", "longest": 6}
MODELS = {
    "convolutional": (CONVOLUTIONAL, Limits(Limit(6, "model.encoder.longest"), Limit(9, "model.decoder.longest"))),
    "transformer": (
        {
            "encoder": {"kind": "transformer", "attention": HEADS, "positions": "learned", "longest": 6, **STACK},
            "decoder": {
                "kind": "transformer", "positions": "learned", "longest": 9, **STACK,
                "attention": HEADS, "cross_attention": HEADS,
            },
        },
        Limits(Limit(6, "model.encoder.longest"), Limit(9, "model.decoder.longest")),
    ),
    "alone": (ALONE, Limits(both=Limit(9, "model.longest"))),
    "location": (
        {"encoder": RECURRENT, "decoder": {"attention": LOCATION, **RECURRENT}},
        Limits(Limit(6, "model.decoder.attention.longest")),
    ),
    "location over a stretched memory": (
        {"encoder": {"kind": "bytenet", "embedding_size": 8, "hidden_size": 4, "stretch": 1.5, "extra": 1},
         "decoder": {"attention": {**LOCATION, "longest": 9}, **RECURRENT}},
        Limits(Limit(5, "model.decoder.attention.longest")),
    ),
    "no limit": ({"encoder": RECURRENT, "decoder": RECURRENT}, Limits()),
}  # fmt: skip
TEXTS = ["a b", "a b c a", "c", "b c a", "a a"]
LONG = "a b c a b c a b"


def trained(section, beam=1, never_ends=False):
    tokenizer = train_tokenizer(Tokenizer(kind="word"), ["a b c"])
    torch.manual_seed(3)
    model = build(configure(section), len(tokenizer), len(tokenizer))
    if never_ends:
        with torch.no_grad():
            bias = torch.zeros(len(tokenizer))
            bias[END] = -1e4
            model.decoder.output.bias = torch.nn.Parameter(bias)
    return TrainedGenerator(Bundle(model, texts(tokenizer, tokenizer), Decoding(beam=beam, max_ratio=10.0)))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_says_how_many_places_it_knows(name):
    section, limits = MODELS[name]
    assert trained(section).model.limits == limits


@pytest.mark.parametrize("name", [name for name in MODELS if name != "no limit"])
def test_what_fits_is_read_and_one_token_more_is_refused(name):
    """`problem` draws the line where the model itself fails."""
    model = trained(MODELS[name][0])
    for count in range(1, 12):
        pair = " ".join(["a"] * count), "b"
        source, lengths = model.pad(model.source.encode([pair[0]]))
        words, _ = model.pad(model.target.encode([pair[1]]))
        if model.too_long([pair[0]], [pair[1]]):
            with pytest.raises(UserError, match="places"):
                model.model(reading(source, lengths), words)
        else:
            model.model(reading(source, lengths), words)


@pytest.mark.parametrize("name", ["convolutional", "transformer"])
def test_long_targets_too(name):
    model = trained(MODELS[name][0])
    assert model.too_long(["a", "a"], [" ".join("b" * 8), " ".join("b" * 9)]) == {
        1: "too long: the target has 10 tokens with its start mark, the model has places for 9 (model.decoder.longest)"
    }
    model.score([("a", " ".join("b" * 8))])
    with pytest.raises(UserError, match=r"pairs\[1\]: too long: the target has 10 tokens"):
        model.score([("a", "b"), ("a", " ".join("b" * 9))])


CALLS = {
    "generate": lambda model, texts: model.generate(texts),
    "search": lambda model, texts: model.search(texts, beam=2),
    "sample": lambda model, texts: model.sample(texts, 2),
    "score": lambda model, texts: model.score([(text, "b") for text in texts]),
    "align": lambda model, texts: [one.weights.round(4).tolist() for one in model.align([(text, "b") for text in texts])],
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", [name for name in MODELS if name != "no limit"])
def test_a_long_text_fails_alone_and_by_its_index_once_the_others_are_answered(name, call):
    model, texts = trained(MODELS[name][0]), ["", *TEXTS, LONG, "b", LONG]
    what = "pairs" if call in ("score", "align") else "texts"
    with pytest.raises(InputError, match=rf"{what}\[6\] \(and 1 more\): too long: .* places for") as raised:
        CALLS[call](model, texts)
    error = raised.value
    assert list(error.problems) == [6, 8] == [row for row, result in enumerate(error.results) if result is None]
    assert error.problems == model.too_long(texts, ["b"] * 9 if what == "pairs" else None)
    others = CALLS[call](model, [text for text in texts if text != LONG])
    answered = [result for result in error.results if result is not None]
    if call == "align":
        answered = [one.weights.round(4).tolist() for one in answered]
    assert answered == others if call != "score" else [one.tokens for one in answered] == [one.tokens for one in others]


def test_without_a_limit_nothing_is_too_long():
    model = trained(MODELS["no limit"][0])
    assert model.too_long([LONG * 50]) == {}
    assert len(model.generate([LONG * 50])) == 1


@pytest.mark.parametrize("beam", [1, 3])
@pytest.mark.parametrize("name", ["convolutional", "transformer", "alone"])
def test_outputs_end_where_places_end_in_any_company(name, beam):
    model = trained(MODELS[name][0], beam, never_ends=True)
    places = [9 - (len(text.split()) + 1 if name == "alone" else 0) for text in TEXTS]
    together = model.search(TEXTS)
    assert [len(found[0].tokens) for found in together] == places
    drawn = model.sample(TEXTS, sampling=Sampling(seed=2))
    for text, found, one in zip(TEXTS, together, drawn, strict=True):
        (alone,) = model.search([text])
        assert [each.tokens for each in alone] == [each.tokens for each in found]
        assert [each.tokens for each in model.sample([text], sampling=Sampling(seed=2))[0]] == [each.tokens for each in one]


def test_a_long_source_and_a_long_target_of_two_rows_share_a_batch():
    """Together they are padded beyond the places of a decoder alone, though each row has places enough."""
    model = trained(ALONE)
    pairs = [("a b c a b c", "c"), ("b", "c a b a c b")]
    together = model.score(pairs)
    for pair, ours in zip(pairs, together, strict=True):
        assert ours.log_prob == pytest.approx(model.score([pair])[0].log_prob, abs=1e-5)
    for ours, pair in zip(model.align(pairs), pairs, strict=True):
        torch.testing.assert_close(torch.from_numpy(ours.weights), torch.from_numpy(model.align([pair])[0].weights))


@pytest.mark.parametrize(("max_ratio", "together"), [(3.0, 8), (200.0, 2)])
def test_few_are_searched_together_where_outputs_may_be_long(max_ratio, together, monkeypatch):
    """400 tokens of an output count as 400 // 32 = 12 of a batch of 2 x 13, whatever the source has."""
    model, seen = trained(MODELS["no limit"][0]), []
    real = TrainedGenerator.search_batch
    monkeypatch.setattr(
        TrainedGenerator, "search_batch", lambda self, sources, *rest: seen.append(len(sources)) or real(self, sources, *rest)
    )
    few = model.generate(["a b"] * 8, beam=1, batch_tokens=26, max_ratio=max_ratio, max_length=400)
    assert seen == [together] * (8 // together)
    assert few == [model.generate("a b", beam=1, max_ratio=max_ratio, max_length=400)] * 8
