"""What comes out of every hypothesis: the log-probability of each token, where the search looked, why it ended; against
teacher forcing, which knows nothing of searches, and against `align`, which reads an output again."""

from itertools import chain

import numpy as np
import pytest
import torch
from bounded import bounded
from kinds import KINDS, small
from tiny import END, FEW, SETTINGS, SOON, START, batch, tiny
from tiny_transformer import section

from regard.data.batching import reading
from regard.data.fields import texts
from regard.data.tokenizers import PAD, UNKNOWN, train_tokenizer
from regard.decoding.beam import beam_search
from regard.decoding.generator import TrainedGenerator
from regard.decoding.greedy import greedy_search
from regard.decoding.sampling import Sampling, chances_of, sample
from regard.decoding.trace import Trace
from regard.errors import UserError
from regard.models.directory import Bundle, Reading
from regard.models.interface import Step
from regard.recipe import Decoding, Tokenizer

SOURCES = [[4, 5, 6, 7, 8, 4], [8], [5, 5, 7], [6, 4]]
LIMITS = [5, 4, 5, 5]
LOOKING = [name for name in (*sorted(SOON), *KINDS) if name not in SETTINGS or SETTINGS[name]["attention"]]
WAYS = {
    "greedy": lambda given, trace: greedy_search(*given, end=END, trace=trace),
    "beam": lambda given, trace: beam_search(*given, end=END, width=3, length_penalty=1.0, trace=trace),
    "sample": lambda given, trace: sample(
        *given, end=END, chances=chances_of(SOURCES, 2, 9, 1), sampling=Sampling(), trace=trace
    ),
}


def built(name):
    return tiny(SETTINGS[name], scale=2.0) if name in SETTINGS else small(KINDS[name], scale=1.5)


def no_padding(step):
    """Teacher forcing takes a written PAD for the end of a row: experts do not count it."""
    return step._replace(logits=step.logits.index_fill(1, torch.tensor([PAD]), -1e9))


# every attention there is steps as it is taught to (test_laws.py, test_kinds.py), so the search is tried with some of them
SOME = [name if number % 5 == 0 else pytest.param(name, marks=pytest.mark.slow) for number, name in enumerate(LOOKING)]


@pytest.mark.parametrize("name", SOME)
@torch.no_grad()
def test_a_search_saw_what_teacher_forcing_sees(name):
    """Of every hypothesis, the last ones of the beam too, in every search."""
    model, (source, lengths) = built(name), batch(*SOURCES)
    if not model.has_attention:
        return
    step, state = model.start(model.encode(reading(source, lengths)))
    given = bounded(lambda words, state: no_padding(step(words, state)), state, LIMITS)
    for way in WAYS.values():
        found = way(given, Trace(lambda weights: weights[:, 0]))
        assert [[one[:4] for one in each] for each in found] == [[one[:4] for one in each] for each in way(given, None)]
        for words, each in zip(SOURCES, found, strict=True):
            for one in each:
                outputs = [*one.tokens, END] if one.end == "end mark" else one.tokens
                steps = model.teacher_forced(
                    reading(torch.tensor([words]), torch.tensor([len(words)])),
                    torch.tensor([[START, *outputs[:-1]]]),
                    return_weights=True,
                )
                log_probs = no_padding(Step(model.logits(steps)[0], None, None)).logits.log_softmax(-1)[
                    torch.arange(len(outputs)), torch.tensor(outputs)
                ]
                torch.testing.assert_close(torch.tensor(one.token_scores), log_probs, atol=1e-5, rtol=1e-4)
                assert sum(one.token_scores) == pytest.approx(one.log_prob, abs=1e-5)
                torch.testing.assert_close(
                    one.looks[:, : len(words)], steps.weights[0, 0, :, : len(words)], atol=1e-5, rtol=1e-4
                )


TEXTS = ["a b c", "c", "", "b a b c a", "a a", "c b a c"]


@pytest.fixture(params=["gru", "transformer"])
def trained(request):
    """Some outputs end by themselves, some are cut."""
    source, target = (train_tokenizer(Tokenizer(kind="word"), [side]) for side in ("a b c", "x y z"))
    if request.param == "gru":
        model = tiny(FEW["gru-additive-into_cell"], vocabulary=len(target), scale=2.0)
    else:
        model = small(section(decoder={"output_bias": True, "tied": False}), len(target), scale=1.5)
    model.decoder.output.bias.data[END] += 1
    model.decoder.output.bias.data[[PAD, UNKNOWN, START]] = -1e4  # whose texts are not read as they were written
    return TrainedGenerator(Bundle(model, texts(source, target), Decoding(length_penalty=0.5, max_length=4)))


@pytest.mark.parametrize("look", [Reading(), Reading(head=0, shift=1)])
@pytest.mark.parametrize("beam", [1, 3])
def test_the_alignment_of_a_search_is_that_of_reading_its_output_again(trained, beam, look):
    """By a reading one step later too, of outputs that were cut as of those that ended."""
    trained.reading, seen = look, set()
    for ends in (-9.0, 1.0):
        trained.model.decoder.output.bias.data[END] = ends
        for text, each in zip(TEXTS, trained.search(TEXTS, beam=beam, max_ratio=1.0, alignment=True), strict=True):
            assert bool(each) == bool(text)
            for one in each:
                again = trained.align((text, one.text))
                assert (one.alignment.source, one.alignment.target) == (again.source, again.target)
                np.testing.assert_allclose(one.alignment.weights, again.weights, atol=1e-5)
                np.testing.assert_allclose(one.alignment.end, again.end, atol=1e-5)
                seen.add(one.cut)
    assert seen == {False, True}


def test_details_are_there_if_asked_for_and_change_nothing_else(trained):
    for ask in (lambda **more: trained.search(TEXTS, **more), lambda **more: trained.sample(TEXTS, 2, **more)):
        plain, full = ask(), ask(token_scores=True, alignment=True)
        for one, other in zip(chain(*plain), chain(*full), strict=True):
            assert one.token_scores is one.alignment is None
            assert one == other._replace(token_scores=None, alignment=None)
            assert len(other.token_scores) == len(other.tokens) + (not other.cut)
            assert other.alignment.weights.shape == (len(other.text.split()), len(other.alignment.source))
    (one, *_) = trained.search("a b", token_scores=True)
    assert (one.alignment, len(one.token_scores)) == (None, len(one.tokens) + (not one.cut))


def test_a_replaced_word_is_aligned_as_it_stands_in_the_text():
    source, target = (train_tokenizer(Tokenizer(kind="word", size=7), [side]) for side in ("a b c", "x y z"))
    model = tiny(FEW["gru-additive-into_cell"], vocabulary=7, scale=2.0)
    model.decoder.output.bias.data[1] = 9.0  # the unknown word
    trained = TrainedGenerator(Bundle(model, texts(source, target), Decoding(max_length=4)))
    for one in trained.search("Ford b Zaphod", replace_unknown=True, alignment=True):
        assert one.alignment.source == ["Ford", "b", "Zaphod"]
        assert one.alignment.target == one.text.split()
        assert {"Ford", "b", "Zaphod"} & set(one.alignment.target)


@pytest.mark.parametrize("beam", [1, 3])
def test_why_an_output_ended(trained, beam):
    stop = {0: 2}  # text -> how long it may get
    trained.model.decoder.output.bias.data[END] = -1e4
    found = trained.search(TEXTS, beam=beam, max_length=5, on_step=lambda one: len(one.tokens) < stop.get(one.row, 99))
    assert [[one.end for one in each] for each in found[:2]] == [["on_step"] * beam, ["decoding.max_length"] * beam]
    assert {one.end for one in trained.search("a", beam=beam, max_length=99, max_ratio=0.1)} == {"decoding.max_ratio"}
    trained.model.decoder.output.bias.data[END] = 1e4
    (one, *_) = trained.search("a", beam=beam)
    assert (one.end, one.cut, one.tokens) == ("end mark", False, [])
    assert trained.answer(TEXTS, trained.settings(), on_step=lambda _: False).cuts == {}  # nobody's limit was met


def test_a_model_without_attention_has_no_alignment():
    source, target = (train_tokenizer(Tokenizer(kind="word"), [side]) for side in ("a b c", "x y z"))
    blind = TrainedGenerator(Bundle(tiny(FEW["lstm-none"], vocabulary=len(target)), texts(source, target), Decoding()))
    assert blind.search("a b", token_scores=True)[0].token_scores
    with pytest.raises(UserError, match="no attention"):
        blind.search("a b", alignment=True)


def test_a_word_in_the_last_place_has_no_link_by_a_later_step():
    """Nothing can be read behind it, by a search or again."""
    source, target = (train_tokenizer(Tokenizer(kind="word"), [side]) for side in ("a b c", "x y z"))
    model = small(KINDS["transformer-positions-learned"], len(target))
    trained = TrainedGenerator(Bundle(model, texts(source, target), Decoding(beam=1, max_length=99), Reading(shift=1)))
    model.decoder.embed.weight.data[[PAD, UNKNOWN, START, END]] = 0.0
    model.decoder.embed.weight.data[4:] = model.decoder.embed.weight.data[4:].abs() + 9.0  # tied: these words always win
    (one,) = trained.search("a b", alignment=True)
    weights = one.alignment.weights
    assert one.end == model.limits.target.key
    assert len(weights) == len(one.tokens) == model.limits.target.places
    assert weights[:-1].any(axis=1).all() == (not weights[-1].any())
