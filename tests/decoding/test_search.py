"""Search against enumeration, over models and over hand-made steps."""

import itertools
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from bounded import bounded
from tiny import END, FEW, LAWS, SETTINGS, START, batch, tiny

from regard.data.batching import reading
from regard.decoding.beam import beam_search
from regard.decoding.greedy import greedy_search
from regard.errors import UserError
from regard.models.interface import Step

VOCABULARY = 6


def every_output(model, source, limit, penalty):
    """All outputs of up to `limit` tokens with their log-probability, as the model itself gives it, best first."""
    lengths, found = torch.tensor([source.shape[1]]), []
    for size in range(1, limit + 1):
        for words in itertools.product(range(VOCABULARY), repeat=size):
            closed = words[-1] == END
            if END in words[:-1] or (not closed and size < limit):
                continue
            log_probs = model(reading(source, lengths), torch.tensor([[START, *words[:-1]]])).log_softmax(-1)[0]
            total = sum(log_probs[at, word].item() for at, word in enumerate(words))
            found.append((total / size**penalty, list(words[:-1] if closed else words)))
    return sorted(found, reverse=True)


@pytest.mark.parametrize("penalty", [0.0, 0.7])
@pytest.mark.parametrize("name", FEW)
@torch.no_grad()
def test_a_wide_beam_finds_the_ranking_that_enumeration_finds(name, penalty):
    model = tiny(FEW[name], vocabulary=VOCABULARY, scale=2.5)  # peaked: hypotheses change places between steps
    source, lengths = batch([4, 5, 4])
    expected = every_output(model, source, 3, penalty)
    step, state = model.start(model.encode(reading(source, lengths)))
    found = beam_search(*bounded(step, state, [3]), width=len(expected), end=END, length_penalty=penalty)[0]
    torch.testing.assert_close(
        torch.tensor([one.score for one in found]), torch.tensor([score for score, _ in expected]), atol=1e-4, rtol=1e-4
    )
    assert [one.tokens for one in found[:20]] == [tokens for _, tokens in expected[:20]]


SOURCES = [[4, 5, 6, 7, 8, 4], [8], [5, 5, 7], [6, 4]]


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.slow), 3])
@torch.no_grad()
def test_a_sentence_decodes_alike_alone_and_in_any_batch(name, width):
    model = tiny(SETTINGS[name], scale=2.0)

    def decode(sources):
        padded, lengths = batch(*sources)
        step, state = model.start(model.encode(reading(padded, lengths)))
        return beam_search(*bounded(step, state, lengths * 2 + 1), width=width, end=END, length_penalty=1.0)

    together, turned = decode(SOURCES), decode(SOURCES[::-1])[::-1]
    for row, source in enumerate(SOURCES):
        for other in (turned[row], decode([source])[0]):
            assert [one.tokens for one in other] == [one.tokens for one in together[row]]
            torch.testing.assert_close([one.score for one in other], [one.score for one in together[row]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", FEW)
@torch.no_grad()
def test_greedy_is_a_beam_of_one(name):
    model, (source, lengths) = tiny(FEW[name], scale=2.0), batch(*SOURCES)
    given = bounded(*model.start(model.encode(reading(source, lengths))), lengths * 2)
    greedy, beam = greedy_search(*given, end=END), beam_search(*given, end=END, width=1)
    for one, other in zip(greedy, beam, strict=True):
        assert one[0].tokens == other[0].tokens
        assert one[0].log_prob == pytest.approx(other[0].log_prob, abs=1e-5)


def chain(rows):
    """A step that reads log-probabilities of the next word off a table: rows[last word][next word]."""
    table = torch.tensor(rows).log()

    def step(tokens, state):
        return Step(table[tokens], None, state)

    return step, torch.zeros(1, 1)


def test_scores_and_lengths_by_hand():
    # words: 0, 1, start 2, end 3. From the start: 0 with 0.6, 1 with 0.4; 0 ends with 0.5; 1 ends with 0.9
    step, state = chain([[0.25, 0.25, 0.0, 0.5], [0.05, 0.05, 0.0, 0.9], [0.6, 0.4, 0.0, 0.0], [0.25] * 4])
    best = beam_search(*bounded(step, state, [5]), width=2, end=3)[0]
    assert [one.tokens for one in best] == [[1], [0]]
    assert [one.log_prob for one in best] == pytest.approx([torch.tensor(p).log().item() for p in (0.36, 0.3)])
    greedy = greedy_search(*bounded(step, state, [5]), end=3)[0][0]
    assert greedy.tokens == [0]
    assert greedy.log_prob == pytest.approx(torch.tensor(0.3).log().item())


def test_the_length_penalty_favours_longer_outputs():
    step, state = chain([[0.6, 0.0, 0.0, 0.4], [0.25] * 4, [0.5, 0.0, 0.0, 0.5], [0.25] * 4])
    short = beam_search(*bounded(step, state, [6]), width=3, end=3, length_penalty=0.0)[0][0]
    long = beam_search(*bounded(step, state, [6]), width=3, end=3, length_penalty=2.0)[0][0]
    assert len(short.tokens) == 0
    assert len(long.tokens) > 1


def test_each_sentence_stops_at_its_own_limit():
    step, _ = chain([[1.0, 0.0, 0.0, 0.0]] * 4)  # never ends
    for found in (
        greedy_search(*bounded(step, torch.zeros(2, 1), [2, 5]), end=3),
        beam_search(*bounded(step, torch.zeros(2, 1), [2, 5]), width=2, end=3),
    ):
        assert [len(sentence[0].tokens) for sentence in found] == [2, 5]


def test_the_beam_carries_the_state_of_the_hypothesis_it_keeps():
    """The state counts words seen; a beam that forgets to re-order it would score a hypothesis by its neighbour's."""

    def step(tokens, state):
        history = torch.cat([state, tokens[:, None].float()], dim=1)
        favourite = history.sum(dim=1).long() % 5
        logits = torch.nn.functional.one_hot(favourite, 5).float() * 2
        return Step(logits, None, history)

    found = beam_search(*bounded(step, torch.zeros(1, 1), [4]), width=20, end=3)[0]
    for one in found:
        words, total = [2, *one.tokens], 0.0
        outputs = [*one.tokens, 3] if len(one.tokens) < 4 else one.tokens
        for at, word in enumerate(outputs):
            logits = torch.nn.functional.one_hot(torch.tensor(sum(words[: at + 1]) % 5), 5).float() * 2
            total += logits.log_softmax(-1)[word].item()
        assert one.log_prob == pytest.approx(total, abs=1e-4)


def test_not_a_number_is_an_error_and_never_an_output():
    def step(tokens, state):
        return Step(torch.full((len(tokens), 5), float("nan")), None, state)

    for search in (
        lambda: greedy_search(*bounded(step, torch.zeros(1, 1), [3]), end=3),
        lambda: beam_search(*bounded(step, torch.zeros(1, 1), [3]), width=2, end=3),
    ):
        with pytest.raises(UserError, match="not-a-number"):
            search()
