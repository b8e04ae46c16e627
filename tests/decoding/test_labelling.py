"""Labellers in use: a text is labelled alike alone, in any batch, in any order; what cannot be read fails alone."""

import math
from itertools import product

import pytest
import torch
from citizens import BODIES, spread

from regard.data.fields import Label, Spelled, Tags, Text
from regard.data.tokenizers import train_tokenizer
from regard.decoding.labelling import TrainedLabeller
from regard.decoding.load import in_use
from regard.errors import InputError, UserError
from regard.models import build, configure
from regard.models.directory import Bundle
from regard.recipe import Decoding, Tokenizer

TEXTS = ["a b c d e", "b", "c c a", "", "e d", "a b a b a b a", "e"]
NAMES = ["N", "V", "X"]


def spelled(length=3):
    fitter = Spelled.fitter(Spelled.Config(length=length, tokenizer=Tokenizer(kind="word")))
    fitter.add(["a b c d e"], "source")
    return fitter.finish()


def used(kind, encoder, crf=False, source=None, **options):
    tokenizer = train_tokenizer(Tokenizer(kind="word"), ["a b c d e"])
    labels = {"tagger": Tags, "classifier": Label}[kind](NAMES)
    fields = {"source": source or Text(tokenizer), {"tagger": "tags", "classifier": "label"}[kind]: labels}
    section = {"kind": kind, "encoder": {**BODIES[encoder], **options}, **({"crf": True} if crf else {})}
    model = spread(build(configure(section), *(field.shape for field in fields.values())))
    trained = in_use(Bundle(model, fields, Decoding(batch_tokens=12)))
    assert isinstance(trained, TrainedLabeller)
    return trained


def test_words_that_are_spelled_out_are_labelled_alike_and_an_empty_text_has_no_tags():
    options = {"crf": True, "source": spelled(), "input": {"kind": "characters", "size": 2}}
    trained = used("tagger", "recurrent", **options)
    texts = [*TEXTS, "ab zz c", "", ""]
    for text, found in zip(texts, trained.predict(texts), strict=True):
        alone = trained.predict(text)
        assert len(found.labels) == len(text.split())
        assert (found.labels, found.log_prob) == (alone.labels, pytest.approx(alone.log_prob))
        (scored,) = trained.score([(text, " ".join(found.labels))])
        assert scored.log_prob == pytest.approx(found.log_prob, abs=1e-5)
    assert trained.predict("").log_prob == 0
    classifier = used("classifier", "recurrent", source=spelled(), input={"kind": "characters", "size": 2})
    with pytest.raises(InputError, match="there is no word in it") as raised:
        classifier.predict(["a", "", "b"])
    assert list(raised.value.problems) == [1]


@pytest.mark.parametrize("crf", [False, True])
def test_the_likeliest_tags_together_are_no_less_probable_than_any(crf):
    trained = used("tagger", "recurrent", crf=crf)
    (found,) = trained.predict(["a b c"])
    every = {tags: trained.score([("a b c", " ".join(tags))])[0].log_prob for tags in product(NAMES, repeat=3)}
    assert tuple(found.labels) == max(every, key=every.get)
    assert found.log_prob == pytest.approx(max(every.values()), rel=1e-4)
    assert sum(map(math.exp, every.values())) == pytest.approx(1, rel=1e-4)
    for place, label in enumerate(found.labels):
        chance = sum(math.exp(one) for tags, one in every.items() if tags[place] == label)
        assert found.probabilities[place] == pytest.approx(chance, rel=1e-4)


@pytest.mark.parametrize("encoder", BODIES)
@pytest.mark.parametrize("kind", ["tagger", "classifier"])
def test_a_text_is_labelled_alike_alone_in_any_batch_in_any_order(kind, encoder):
    trained = used(kind, encoder)
    together, chances = trained.predict(TEXTS), trained.distributions(TEXTS)
    for text, found, each in zip(TEXTS, together, chances, strict=True):
        (alone,), (one,) = trained.predict([text]), trained.distributions([text])
        assert found.labels == alone.labels
        assert len(found.labels) == (len(text.split()) if kind == "tagger" else 1)
        assert found.probabilities == pytest.approx(alone.probabilities)
        assert found.labels == [NAMES[at] for at in one.argmax(dim=-1).tolist()]
        torch.testing.assert_close(each, one)
    assert [one.labels for one in trained.predict(TEXTS[::-1])] == [one.labels for one in together[::-1]]
    assert str(together[0]) == " ".join(together[0].labels)


@pytest.mark.parametrize("kind", ["tagger", "classifier"])
def test_scores_are_the_log_probabilities_of_labels(kind):
    trained = used(kind, "recurrent")
    chances = trained.distributions(TEXTS)
    truth = [["NVXNV", "V", "XXN", "", "VN", "NVNVNVN", "X"], list("NVXXNVN")][kind == "classifier"]
    found = trained.score([(text, " ".join(labels)) for text, labels in zip(TEXTS, truth, strict=True)])
    for one, each, labels in zip(found, chances, truth, strict=True):
        assert one.tokens == len(labels)
        assert one.log_prob == pytest.approx(sum(math.log(each[place, NAMES.index(name)]) for place, name in enumerate(labels)))
    assert trained.score([("e d", " ".join(truth[4]))])[0].log_prob == pytest.approx(found[4].log_prob)


def test_labels_that_do_not_go_with_a_text_fail_alone():
    trained = used("tagger", "recurrent")
    with pytest.raises(InputError) as raised:
        trained.score([("a b", "N V"), ("a b", "N Q"), ("a b", "N"), ("a", "X")])
    assert list(raised.value.problems) == [1, 2]
    assert "the tag 'Q' is not one of training's" in raised.value.problems[1]
    assert "1 tags for 2 tokens of the source" in raised.value.problems[2]
    good = trained.score([("a b", "N V"), ("a", "X")])
    assert [raised.value.results[row].log_prob for row in (0, 3)] == pytest.approx([one.log_prob for one in good])


def test_a_text_that_is_too_long_fails_alone():
    trained = used("tagger", "transformer", positions="learned", longest=5)
    with pytest.raises(InputError, match=r"8 tokens with its end mark.*places for 5 \(model\.encoder\.longest\)") as raised:
        trained.predict(["a b", "a b c a b c a", "c"])
    assert [one and one.labels for one in raised.value.results] == [trained.predict([text])[0].labels if text else None
                                                                    for text in ("a b", None, "c")]  # fmt: skip


@pytest.mark.parametrize("kind", ["tagger", "classifier"])
def test_a_labeller_says_that_it_has_no_looks_to_show(kind):
    trained = used(kind, "recurrent")
    with pytest.raises(UserError, match="this model has no attention, so there is nothing to look at"):
        trained.look("a b")
