"""When a sentence is finished, and what may close it; the words of `Trained`."""

import pytest
import torch
from bounded import bounded

from regard.decoding.beam import beam_search
from regard.decoding.greedy import greedy_search
from regard.models.interface import Step

END = 3


def chain(rows):
    """A step that reads log-probabilities of the next word off a table: rows[last word][next word]."""
    table, calls = torch.tensor(rows).log(), []

    def step(tokens, state):
        calls.append(tokens)
        return Step(table[tokens], None, state)

    return step, calls


def test_a_sentence_is_finished_when_width_hypotheses_have_closed():
    """Every step one hypothesis ends: a beam of `width` takes `width` steps and no more."""
    for width in (1, 2, 3):
        step, calls = chain([[0.4, 0.0, 0.0, 0.6]] * 4)
        found = beam_search(*bounded(step, torch.zeros(1, 1), [9]), width=width, end=END)[0]
        assert len(calls) == width
        assert [len(one.tokens) for one in found] == list(range(width))


def test_an_ending_closes_only_among_the_best_width():
    """A word beats the end mark in the first step: a beam of one goes on, a beam of two closes the empty output too."""
    rows = [[0.1, 0.0, 0.0, 0.9], [0.25] * 4, [0.6, 0.0, 0.0, 0.4], [0.25] * 4]
    for width, outputs in ((1, [[0]]), (2, [[0], []])):
        found = beam_search(*bounded(chain(rows)[0], torch.zeros(1, 1), [5]), width=width, end=END)[0]
        assert [one.tokens for one in found] == outputs


def test_the_limit_closes_nothing_where_width_have_closed():
    """One ends in each of two steps, the second at the limit; what is still open then stays out, however good."""
    step, _ = chain([[0.6, 0.0, 0.0, 0.4], [0.25] * 4, [0.6, 0.0, 0.0, 0.4], [0.25] * 4])
    found = beam_search(*bounded(step, torch.zeros(1, 1), [2]), width=2, end=END)[0]
    assert [one.tokens for one in found] == [[], [0]]


def test_a_finished_sentence_finds_nothing_more():
    """Its neighbour goes on for long; its own hypotheses are those it has alone."""

    def step(tokens, state):
        short = state[:, 0] == 0
        ends = torch.tensor([[0.4, 0.0, 0.0, 0.6]]).log()
        goes = torch.tensor([[1.0, 0.0, 0.0, 0.0]]).log()
        return Step(torch.where(short[:, None], ends, goes), None, state)

    ways = {"width": 2, "end": END, "length_penalty": 3.0}
    both = beam_search(*bounded(step, torch.tensor([[0.0], [1.0]]), [8, 8]), **ways)
    alone = beam_search(*bounded(step, torch.tensor([[0.0]]), [8]), **ways)
    assert both[0] == alone[0]


def test_greedy_has_the_score_of_a_beam_of_one():
    step, _ = chain([[0.3, 0.0, 0.0, 0.7], [0.25] * 4, [0.9, 0.0, 0.0, 0.1], [0.25] * 4])
    given = bounded(step, torch.zeros(1, 1), [5])
    found = [search(*given, end=END, **more) for search, more in ((greedy_search, {}), (beam_search, {"width": 1}))]
    assert found[0][0][0].score == pytest.approx(found[1][0][0].score)


def test_an_open_hypothesis_that_leads_is_not_left_behind():
    """Early ends, improbable as they are, fill the pool before the best output has come to its own."""
    likely, end, length = 0, 1, 6

    def step(words, state):
        probabilities = torch.tensor([[0.98, 0.02]] if int(state[0, 0]) < length else [[0.02, 0.98]])
        return Step(probabilities.log().expand(len(words), -1), None, state + 1)

    (found,) = beam_search(*bounded(step, torch.zeros(1, 1), [12], 0), width=2, end=end, length_penalty=1.0)
    assert found[0].tokens == [likely] * length
