"""When a beam stops, beams in groups, and which words are drawn from: against the rules written out in plain Python."""

import math

import pytest
import torch
from bounded import bounded

from regard.decoding.beam import beam_search
from regard.decoding.ranking import STOPS
from regard.decoding.sampling import Sampling, draw
from regard.errors import UserError
from regard.models.interface import Step

END, START, VOCABULARY = 3, 2, 7


def random_step(seed):
    """A step whose words depend on time and the word before, and its log-probabilities as a list."""
    table = (2.0 * torch.randn(9, VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(seed))).log_softmax(-1)
    return lambda words, state: Step(table[state[:, 0].long(), words], None, state + 1), table.tolist()


def plain_beam(table, width, longest, stop, groups=1, diversity=0.0, alpha=1.0):
    """One sentence; hypotheses are (log p, words)."""
    size = width // groups
    beams, closed, best, finished = [[(0.0, [])] for _ in range(groups)], [0] * groups, [[] for _ in range(groups)], set()
    for length in range(1, longest + 1):
        used = [0] * VOCABULARY
        for group in sorted(set(range(groups)) - finished):
            candidates = [
                (total + log_prob - diversity * used[word], total + log_prob, [*words, word])
                for total, words in beams[group]
                for word, log_prob in enumerate(table[length - 1][words[-1] if words else START])
            ]
            ranked = [one[1:] for one in sorted(candidates, key=lambda one: -one[0])[: 2 * size]]
            ended = [one for one in ranked[:size] if one[1][-1] == END]
            beams[group] = [one for one in ranked if one[1][-1] != END][:size]
            for _, words in beams[group]:
                used[words[-1]] += 1
            closed[group] += len(ended)
            best[group] += [(total / length**alpha, words[:-1]) for total, words in ended]
            best[group] = sorted(best[group], key=lambda one: -one[0])[:size]
            leader = max(total / length**alpha for total, _ in beams[group])
            enough = closed[group] >= size
            if {"first": enough, "best": enough and leader <= best[group][0][0] if best[group] else False, "last": False}[stop]:
                finished.add(group)
            elif length == longest:
                best[group] = sorted([*best[group], *((total / length**alpha, words) for total, words in beams[group])],
                                     key=lambda one: -one[0])[:size]  # fmt: skip
    return sorted({tuple(words): score for group in best for score, words in group}.items(), key=lambda one: -one[1])


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_beam_is_what_plain_python_makes_of_its_rules(stop, groups):
    answers = []
    for seed in range(12):
        step, table = random_step(seed)
        ways = {"stop": stop, "groups": groups, "diversity": 0.7}
        (found,) = beam_search(*bounded(step, torch.zeros(1, 1), [6]), width=4, end=END, length_penalty=1.0, **ways)
        expected = plain_beam(table, 4, 6, **ways)
        assert [tuple(one.tokens) for one in found] == [words for words, _ in expected]
        assert [one.score for one in found] == pytest.approx([score for _, score in expected], abs=1e-5)
        answers.append(found)
    assert any(len(found) > 1 for found in answers)


def test_the_rules_to_stop_differ():
    found = {}
    for stop in STOPS:
        found[stop] = []
        for seed in range(60):
            step, _ = random_step(seed)
            found[stop] += beam_search(*bounded(step, torch.zeros(1, 1), [9]), width=3, end=END, length_penalty=1.0, stop=stop)
    best = {stop: [each[0].score for each in sentences] for stop, sentences in found.items()}
    assert all(map(float.__le__, best["first"], best["best"]))
    assert all(map(float.__le__, best["best"], best["last"]))
    assert len({tuple(scores) for scores in best.values()}) == 3


def test_much_diversity_gives_every_group_another_first_word():
    step, _ = random_step(1)
    (found,) = beam_search(*bounded(step, torch.zeros(1, 1), [4]), width=5, end=END, groups=5, diversity=50.0)
    assert len({one.tokens[0] for one in found if one.tokens}) >= 4


def plain_typical(shares, mass):
    entropy = -sum(share * math.log(share) for share in shares if share)
    kept, total = set(), 0.0
    for word in sorted(
        (word for word, share in enumerate(shares) if share), key=lambda word: abs(-math.log(shares[word]) - entropy)
    ):
        if total < mass:
            kept.add(word)
        total += shares[word]
    return kept


@pytest.mark.parametrize(
    "options", [{"min_p": 0.3}, {"typical_p": 0.2}, {"typical_p": 0.6}, {"top_k": 4, "typical_p": 0.7}, {"min_p": 1.0}]
)
def test_words_are_drawn_from_what_is_kept(options):
    for seed in range(5):
        shares = (2 * torch.randn(1, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.double)).softmax(-1)
        chances = (torch.arange(4000) + 0.5) / 4000
        words = draw(shares.log().expand(4000, -1), chances, Sampling(**options))
        plain = shares[0].tolist()
        if "top_k" in options:
            least = sorted(plain)[-options["top_k"]]
            plain = [share if share >= least else 0.0 for share in plain]
            plain = [share / sum(plain) for share in plain]
        kept = {word for word, share in enumerate(plain) if share >= options.get("min_p", 0.0) * max(plain) and share}
        kept &= plain_typical(plain, options["typical_p"]) if "typical_p" in options else kept
        counts = words.bincount(minlength=8).double() / 4000
        expected = torch.tensor([share if word in kept else 0.0 for word, share in enumerate(plain)], dtype=torch.double)
        torch.testing.assert_close(counts, expected / expected.sum(), atol=1e-3, rtol=0)


def test_groups_divide_the_beam(trained_letters):
    with pytest.raises(UserError, match="groups=2 must divide decoding"):
        trained_letters.generate("b", beam=3, groups=2)
    texts = ["b b ", " ", "bb b bb "]
    together = trained_letters.search(texts, beam=4, groups=2, alignment=True, token_scores=True)
    for text, found in zip(texts, together, strict=True):
        assert [one.tokens for one in trained_letters.search(text, beam=4, groups=2)] == [one.tokens for one in found]
        assert all(sum(one.token_scores) == pytest.approx(one.log_prob, abs=1e-4) for one in found)
