"""A trained model in use agrees with itself: search, score, align and the training loss see one and the same model."""

import math

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError
from tiny import tiny

from regard.data.batching import pad_lists, reading
from regard.data.fields import texts
from regard.data.tokenizers import END, START, train_tokenizer
from regard.decoding.generator import TrainedGenerator
from regard.errors import UserError
from regard.models.directory import Bundle
from regard.recipe import Decoding, Tokenizer
from regard.training.objective import Objective

SETTING = {"cell": "gru", "attention": {"score": "additive"}, "context": "into_cell"}
SOURCES = ["a b c", "c", "b a b c a", "a a", "c b a c"]
TARGETS = ["x y", "z z z y", "x", "y x z", "z"]
PAIRS = list(zip(SOURCES, TARGETS, strict=True))


@pytest.fixture
def trained():
    source, target = (train_tokenizer(Tokenizer(kind="word"), side) for side in (SOURCES, TARGETS))
    model = tiny(SETTING, vocabulary=max(len(source), len(target)), scale=2.0)
    model.decoder.output.bias.data[END] += 3  # most outputs close before their limit
    return TrainedGenerator(Bundle(model, texts(source, target), Decoding(beam=3, length_penalty=0.5)))


def closed(text, one):
    return len(one.tokens) < 3 * (len(text.split()) + 1) + 10


def never_ending(trained):
    trained.model.decoder.output.bias.data[END] = -1e4
    return trained


def test_outputs_come_in_the_order_of_the_texts(trained):
    alone = [trained.search([text])[0] for text in SOURCES]
    for budget in (1, 12, 4096):
        trained.decoding = Decoding(beam=3, length_penalty=0.5, batch_tokens=budget)
        for ours, theirs in zip(trained.search(SOURCES), alone, strict=True):
            assert [one.tokens for one in ours] == [one.tokens for one in theirs]
    assert trained.generate(SOURCES) == [found[0].text for found in alone]


def test_what_is_found_is_as_probable_as_its_score_says(trained):
    found = [(text, one) for text, hypotheses in zip(SOURCES, trained.search(SOURCES), strict=True) for one in hypotheses]
    found = [(text, one) for text, one in found if closed(text, one)]
    assert len(found) > len(SOURCES)
    scored = trained.score((text, one.text) for text, one in found)
    for (_, one), likelihood in zip(found, scored, strict=True):
        if trained.target.encode([one.text])[0] == one.tokens:  # UNKNOWN has no text of its own
            assert likelihood.log_prob == pytest.approx(one.log_prob, abs=1e-4)
            assert likelihood.tokens == len(one.tokens) + 1
            assert one.score == pytest.approx(one.log_prob / likelihood.tokens**0.5, abs=1e-5)


def test_the_score_is_the_training_loss(trained):
    sources, lengths = pad_lists(trained.source.encode(SOURCES))
    targets, _ = pad_lists(trained.target.encode(TARGETS))
    source, counts, target = map(torch.from_numpy, (sources, lengths, targets))
    loss = Objective(trained.model, 0.0).eval()(reading(source, counts, target=target)).total
    assert -sum(one.log_prob for one in trained.score(PAIRS)) == pytest.approx(loss.item(), rel=1e-5)


def test_the_settings_of_the_search_are_those_asked_for(trained):
    for penalty in (0.0, 2.0):
        for text, found in zip(SOURCES, trained.search(SOURCES, length_penalty=penalty), strict=True):
            for one in found:
                size = len(one.tokens) + closed(text, one)
                assert one.score == pytest.approx(one.log_prob / size**penalty, rel=1e-4)


def test_settings_are_one_value_or_changes_of_it(trained):
    """A value takes the place of the model's own, keywords change some of its fields; the model's own stays as it was."""
    own, given = trained.decoding, Decoding(beam=2, length_penalty=0.0)
    assert trained.settings() == own
    assert trained.settings(given) == given
    assert trained.settings(given, max_length=4) == Decoding(beam=2, length_penalty=0.0, max_length=4)
    assert trained.settings(length_norm="gnmt") == Decoding(beam=3, length_penalty=0.5, length_norm="gnmt")
    assert trained.search(SOURCES, given) == trained.search(SOURCES, beam=2, length_penalty=0.0) != trained.search(SOURCES)
    assert trained.generate(SOURCES, given) == [found[0].text for found in trained.search(SOURCES, given)]
    assert trained.search(SOURCES, given, max_length=3) == trained.search(SOURCES, beam=2, length_penalty=0.0, max_length=3)
    drawn = trained.sample(SOURCES, 2, decoding=given)
    assert [len(found) for found in drawn] == [2] * len(SOURCES)
    assert all(one.score == one.log_prob for found in drawn for one in found)
    assert trained.decoding == own


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"bem": 3}, r"unknown key 'decoding\.bem'; did you mean 'beam'\?"),
        ({"beam": 0}, r"decoding\.beam: input should be greater than 0"),
        ({"length_norm": "gnm"}, r"decoding\.length_norm: "),
        ({"decoding": 5}, r"regard\.recipe\.Decoding"),  # where shapes are checked, types are too
    ],
)
def test_wrong_settings_are_refused_as_in_a_recipe(trained, settings, told):
    for call in (trained.generate, trained.search, trained.sample):
        with pytest.raises((UserError, TypeCheckError), match=told):
            call(SOURCES, **settings)


@pytest.mark.parametrize("beam", [1, 3])
def test_an_output_ends_at_its_limit(trained, beam):
    """max_ratio * source + 10 tokens (the source's end mark counts), and never more than max_length."""
    never_ending(trained)
    trained.decoding = Decoding(beam=beam, max_ratio=2.0)
    lengths = [len(hypotheses[0].tokens) for hypotheses in trained.search(SOURCES)]
    assert lengths == [2 * (len(text.split()) + 1) + 10 for text in SOURCES]
    trained.decoding = Decoding(beam=beam, max_ratio=2.0, max_length=13)
    assert {len(hypotheses[0].tokens) for hypotheses in trained.search(SOURCES)} == {13}


@pytest.mark.parametrize("beam", [1, 3])
def test_an_output_without_its_end_mark_says_so(trained, beam):
    """Exactly those that are as long as their limit allows without an end mark; the key is the one that gave the limit."""
    for ratio, longest in ((0.01, 256), (3.0, 4), (3.0, 256)):
        found = trained.search(SOURCES, beam=beam, max_ratio=ratio, max_length=longest)
        limits = [min(int(ratio * (len(text.split()) + 1) + 10), longest) for text in SOURCES]
        for limit, hypotheses in zip(limits, found, strict=True):
            assert [one.cut for one in hypotheses] == [len(one.tokens) == limit for one in hypotheses]
    never_ending(trained)
    for settings, key in (({"max_ratio": 1.0}, "decoding.max_ratio"), ({"max_length": 5}, "decoding.max_length")):
        answers = trained.answer(SOURCES, trained.settings(beam=beam, **settings))
        assert answers.cuts == dict.fromkeys(range(len(SOURCES)), key)
    assert all(one.cut for drawn in trained.sample(SOURCES, 2, max_length=5) for one in drawn)


def test_a_target_word_is_aligned_by_the_step_that_wrote_it(trained):
    for (source, target), alignment in zip(PAIRS, trained.align(PAIRS), strict=True):
        words = [*trained.source.encode([source])[0], END]
        inputs = [START, *trained.target.encode([target])[0]]
        steps = trained.model.teacher_forced(
            reading(torch.tensor([words]), torch.tensor([len(words)])), torch.tensor([inputs]), return_weights=True
        )
        assert (alignment.source, alignment.target) == (source.split(), target.split())
        torch.testing.assert_close(torch.from_numpy(alignment.weights).float(), steps.weights[0, 0, :-1, :-1].detach())


def test_texts_without_words(trained):
    assert trained.generate(["", "a", ""])[::2] == ["", ""]
    assert [one.tokens for one in trained.score([("", ""), ("a", ""), ("", "x")])] == [1, 1, 2]
    assert [one.weights.shape for one in trained.align([("", "x"), ("a", "")])] == [(1, 0), (0, 1)]
    assert trained.generate([]) == trained.score([]) == []


@pytest.mark.parametrize(("cell", "own"), [("lstm_tape", 0), ("tanh_attention", 1)])
def test_looking_back_is_what_the_encoder_did(trained, cell, own):
    """Each direction's weights sum to 1 over what it had read: words before (and, in the vanilla network, the word itself)."""
    trained.model = tiny({**SETTING, "cell": cell}, vocabulary=len(trained.source), scale=2.0)
    look = trained.look("b a b c a", "x y")
    for head, triangle, first in ((1, np.tril, 0), (2, np.triu, -1)):
        found = look.view("encoder_recurrence", layer=1, head=head)
        assert found.source == found.target == ["b", "a", "b", "c", "a", "</s>"]
        np.testing.assert_array_equal(found.weights, triangle(found.weights, (own - 1) * (1 if head == 1 else -1)))
        sums = np.ones(6)
        sums[first] = own
        np.testing.assert_allclose(found.weights.sum(1), sums, rtol=1e-5)
        assert len(set(found.weights[2].round(4))) > 2


@pytest.mark.parametrize("ways", [{}, {"bidirectional": False, "reverse": True}, {"bidirectional": "interleaved"}])
def test_looking_back_where_layers_attend_to_those_below(trained, ways):
    trained.model = tiny(SETTING, vocabulary=len(trained.source), scale=2.0, connections="self_attention", **ways)
    weights = trained.look("b a b c a", "x").view("encoder_recurrence").weights
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    assert np.tril(weights, -1).any() == ("reverse" not in ways)  # read from the end, a word sees itself and those after it
    assert np.triu(weights, 1).any()


def test_looking_back_wants_a_cell_that_does(trained):
    with pytest.raises(UserError, match="has no map 'encoder_recurrence'; it has cross"):
        trained.look("a b", "x").view("encoder_recurrence")


def test_a_look_tells_what_score_and_search_tell(trained):
    text = "b a b c a"
    given = trained.look(text, "x y", beam=5)
    assert [one.token for one in given.chances][-1] == "</s>"
    assert [one.word for one in given.chances] == [0, 1, 2]
    total = sum(math.log(one.probability) for one in given.chances)
    assert total == pytest.approx(trained.score((text, "x y")).log_prob, rel=1e-4)
    for one in given.chances:
        chances = [chance for _, chance in one.alternatives]
        assert chances == sorted(chances, reverse=True)
        assert one.probability <= chances[0]
    cross = given.view("cross")
    np.testing.assert_allclose(cross.weights[:-1, :-1], given.weights, rtol=1e-5)
    np.testing.assert_allclose(cross.weights[:-1, -1], given.heatmap.end, rtol=1e-5)
    trained.model.decoder.output.bias.data[: END + 1] = -1e4  # it writes nothing but words
    look, found = trained.look(text, beam=4), trained.search(text, beam=4)
    assert look.output == found[0].text
    assert [(one.text, one.log_prob) for one in look.candidates] == [(one.text, one.log_prob) for one in found]
    assert {len(one.alternatives) for one in look.chances} == {4}
