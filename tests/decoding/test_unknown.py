"""Unknown words replaced by what was looked at, against the weights of single steps."""

import pytest
import torch
from kinds import small
from tiny import FEW, tiny
from tiny_transformer import section

from regard.data.fields import texts
from regard.data.tokenizers import START, UNKNOWN, train_tokenizer
from regard.decoding.generator import TrainedGenerator
from regard.decoding.sampling import Sampling
from regard.errors import UserError
from regard.models.directory import Bundle, Reading
from regard.recipe import Decoding, Tokenizer

SOURCES = ["a Zaphod c", "Ford b a Arthur", "b", "", "Trillian"]
SIZE = 7  # of both vocabularies: three words and the specials
DICTIONARY = {"Zaphod": "Beeblebrox", "a": "un mot"}


def in_use(model):
    source, target = (train_tokenizer(Tokenizer(kind="word", size=SIZE), [side]) for side in ("a b c", "x y z"))
    return TrainedGenerator(Bundle(model, texts(source, target), Decoding(beam=3, max_length=8)))


@pytest.fixture(params=["gru", "copying", "transformer"])
def trained(request):
    """A model that often writes what it does not know."""
    if request.param == "transformer":
        model = small(section(decoder={"output_bias": True, "tied": False}), SIZE)
    else:
        copying = {"copy_words": "gated"} if request.param == "copying" else {}
        model = tiny({**FEW["gru-additive-into_cell"], **copying}, vocabulary=SIZE, scale=2.0)
    model.decoder.output.bias.data[UNKNOWN] = 4.0
    return in_use(model)


def words_looked_at(trained, text, tokens, reading):
    """Word by word, one step after another: the text with every ⁇ as the source word with the largest weight."""
    ids = trained.source.encode([text])[0]
    memory = trained.model.encode(trained.inputs([ids], trained.copies(trained.offers([text]))))
    step, state = trained.model.start(memory)
    looks = []
    for token in [START, *tokens]:
        _, weights, state = step(torch.tensor([token]), state)
        looks.append((weights[0].mean(dim=0) if reading.head is None else weights[0, reading.head])[: len(ids)])
    words = text.split()
    return [words[int(looks[at + reading.shift].argmax())] for at, token in enumerate(tokens) if token == UNKNOWN]


def filled(text, words):
    return " ".join(words.pop(0) if word == "⁇" else word for word in text.split())


@pytest.mark.parametrize("reading", [Reading(), Reading(head=0, shift=1)])
@pytest.mark.parametrize("how", ["greedy", "beam", "sample"])
def test_every_unknown_word_is_the_source_word_of_its_step(trained, how, reading):
    trained.reading = reading

    def found(**changes):
        if how == "sample":
            return trained.sample(SOURCES, 3, Sampling(seed=2), **changes)
        return trained.search(SOURCES, beam=1 if how == "greedy" else 3, **changes)

    seen = 0
    for text, plain, replaced in zip(SOURCES, found(), found(replace_unknown=True), strict=True):
        assert [one._replace(text="") for one in replaced] == [one._replace(text="") for one in plain]
        for before, after in zip(plain, replaced, strict=True):
            words = words_looked_at(trained, text, before.tokens, reading)
            seen += len(words)
            assert after.text == filled(before.text, words)
    assert seen > 5


def test_a_dictionary_translates_what_was_looked_at(trained):
    plain = trained.generate(SOURCES, replace_unknown=True)
    trained.dictionary = DICTIONARY
    translated = trained.generate(SOURCES, replace_unknown=True)
    assert plain != translated
    known = {word for text in SOURCES for word in text.split() if word not in DICTIONARY} | {"x", "y", "z", "Beeblebrox"}
    assert {word for text in translated for word in text.replace("un mot", "x").split()} <= known


def test_a_model_without_attention_looked_nowhere():
    with pytest.raises(UserError, match="this one has no attention"):
        in_use(tiny(FEW["lstm-none"], vocabulary=SIZE)).generate(SOURCES, replace_unknown=True)
