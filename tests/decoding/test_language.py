"""Language models in use: texts continue as the model's distribution says, alike alone and in company."""

import collections
import itertools

import pytest
import torch
from citizens import TEXTS, spread

from regard.data.batching import Batch
from regard.data.fields import Text
from regard.data.tokenizers import END, START, train_tokenizer
from regard.decoding.language import TrainedLanguageModel
from regard.decoding.load import in_use
from regard.decoding.sampling import Sampling
from regard.errors import InputError, UserError
from regard.models import build, configure
from regard.models.directory import Bundle
from regard.recipe import Decoding, Tokenizer

PROMPTS = ["a b", "", "b", "b a b a", "a"]


def used(body, **options):
    field = Text(train_tokenizer(Tokenizer(kind="word"), ["a b"]))
    section = {"kind": "language_model", "decoder": {**TEXTS[body], **options}}
    model = spread(build(configure(section), field.shape))
    model.decoder.output.weight.data.mul_(2)  # some words are much more probable than others
    trained = in_use(Bundle(model, {"target": field}, Decoding(max_length=3, batch_tokens=12)))
    assert isinstance(trained, TrainedLanguageModel)
    return trained


def next_words(trained, words):
    """p(next word | words) by teacher forcing, one text alone."""
    logits = trained.model(Batch({}), torch.tensor([[START, *words]]))[0, -1]
    return logits.softmax(dim=-1).tolist()


@pytest.mark.parametrize("body", TEXTS)
def test_scores_are_products_of_the_probabilities_of_next_words(body):
    trained = used(body)
    found = trained.score(PROMPTS)
    for text, one in zip(PROMPTS, found, strict=True):
        (words,) = trained.target.encode([text])
        expected = sum(torch.tensor(next_words(trained, words[:place]))[word].log() for place, word in enumerate([*words, END]))
        assert one.log_prob == pytest.approx(float(expected), rel=1e-5)
        assert one.tokens == len(words) + 1
        assert trained.score([(text,)])[0].log_prob == pytest.approx(one.log_prob)
    assert [one.log_prob for one in trained.score(PROMPTS[::-1])] == pytest.approx([one.log_prob for one in found[::-1]])


@pytest.mark.parametrize("body", TEXTS)
def test_a_prompt_continues_alike_alone_in_any_batch_in_any_order(body):
    trained = used(body)
    together = trained.continue_(PROMPTS, count=3)
    for prompt, found in zip(PROMPTS, together, strict=True):
        (alone,) = trained.continue_([prompt], count=4)
        assert [one.tokens for one in alone[:3]] == [one.tokens for one in found]
        assert [one.log_prob for one in alone[:3]] == pytest.approx([one.log_prob for one in found])
    assert [[one.tokens for one in found] for found in trained.continue_(PROMPTS[::-1], count=3)] == [
        [one.tokens for one in found] for found in together[::-1]
    ]
    other = trained.continue_(PROMPTS, count=3, sampling=Sampling(seed=2))
    assert [one.tokens for found in other for one in found] != [one.tokens for found in together for one in found]


def enumerated(trained, words, longest):
    """Every continuation of at most so many words and its probability: it ends with END, or is cut."""
    for length in range(longest + 1):
        for drawn in itertools.product(range(len(trained.target)), repeat=length):
            tokens = [*drawn, END] if length < longest else list(drawn)
            if END in drawn:
                continue
            chance = 1.0
            for place, word in enumerate(tokens):
                chance *= next_words(trained, [*words, *tokens[:place]])[word]
            yield drawn, chance


@pytest.mark.parametrize("body", ["recurrent", "transformer"])
def test_continuations_are_drawn_as_the_model_says(body):
    """All outputs of at most two words by enumeration, beside four thousand draws by a fixed seed."""
    trained, count = used(body), 4000
    (words,) = trained.target.encode(["b a"])
    expected = dict(enumerated(trained, words, 2))
    assert sum(expected.values()) == pytest.approx(1.0)
    (found,) = trained.continue_(["b a"], count=count, max_length=2)
    drawn = collections.Counter(tuple(one.tokens) for one in found)
    assert drawn.keys() <= expected.keys()
    for tokens, chance in expected.items():
        assert abs(drawn[tokens] / count - chance) < 4 * (chance * (1 - chance) / count) ** 0.5 + 1e-3, tokens
    for one in found[:50]:
        assert one.log_prob == pytest.approx(float(torch.tensor(expected[tuple(one.tokens)]).log()), abs=1e-4)


def test_the_prompt_is_not_repeated_and_a_cold_draw_is_the_likeliest_word():
    trained = used("recurrent")
    ((one,),) = trained.continue_(["a"], sampling=Sampling(top_k=1), max_length=1)
    chances = next_words(trained, trained.target.encode(["a"])[0])
    assert one.tokens == [word for word in [chances.index(max(chances))] if word != END]


def test_a_prompt_that_is_too_long_for_learned_positions_fails_alone():
    trained = used("transformer-learned", longest=5)
    prompts = ["a b", "a b a b a", "a b a"]
    with pytest.raises(InputError, match=r"6 tokens with its start mark.*places for 4 \(model\.decoder\.longest\)") as raised:
        trained.continue_(prompts, count=40, max_length=200)
    assert list(raised.value.problems) == [1]
    for row in (0, 2):
        (alone,) = trained.continue_([prompts[row]], count=40, max_length=200)
        assert [one.tokens for one in raised.value.results[row]] == [one.tokens for one in alone]
        assert max(len(one.tokens) for one in alone) == 4 - len(prompts[row].split())  # all places are used, and no more
    with pytest.raises(InputError) as raised:
        trained.score(prompts)
    assert list(raised.value.problems) == [1]
    assert raised.value.results[2].log_prob == pytest.approx(trained.score([prompts[2]])[0].log_prob)


def test_caches_of_fixed_shapes_are_for_outputs_of_sources():
    with pytest.raises(UserError, match="cache=static is for models that write outputs for sources"):
        used(next(iter(TEXTS))).continue_("a", cache="static")
