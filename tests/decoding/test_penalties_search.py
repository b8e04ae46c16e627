"""The score of Wu et al. 2016, log p / lp(Y) + cp(X; Y), against the formula over every output and its forced weights."""

import itertools
import math
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from bounded import bounded
from tiny import END, START, batch, tiny

from regard.data.batching import reading
from regard.data.fields import texts
from regard.data.tokenizers import train_tokenizer
from regard.decoding.beam import beam_search
from regard.decoding.generator import TrainedGenerator
from regard.decoding.greedy import greedy_search
from regard.decoding.ranking import NORMALISATIONS, Coverage
from regard.errors import RecipeError, UserError
from regard.models.directory import Bundle
from regard.models.interface import Step
from regard.recipe import Decoding, Tokenizer

VOCABULARY = 6
HEADS = {"cell": "gru", "attention": {"score": "general", "heads": 2}, "context": "after_cell"}  # looks differ from step 2 on
NORMS = {
    "power": lambda length, alpha: math.exp(alpha * math.log(length)),
    "gnmt": lambda length, alpha: (5 + length) ** alpha / (5 + 1) ** alpha,
}


def test_every_norm_has_a_formula():
    assert NORMS.keys() == NORMALISATIONS.keys()
    for name, length, alpha in itertools.product(NORMS, (1, 2, 7, 60), (0.0, 0.2, 1.0, 2.0)):
        assert NORMALISATIONS[name](length, alpha) == pytest.approx(NORMS[name](length, alpha))
    with pytest.raises(RecipeError, match="did you mean 'gnmt'"):
        beam_search(*bounded(looking([[1.0]], [[1.0]]), None, [1]), width=1, end=END, length_norm="gnm")


def score(model, source, words, norm, alpha, beta):
    return score_all(model, source, [words], norm, alpha, beta)[0]


def score_all(model, source, outputs, norm, alpha, beta):
    """log p(Y) / lp(Y) + β Σ_j log min(Σ_i p_ij, 1) of outputs of one length, p the mean of the heads' weights; in float64 and
    without padding."""
    inputs = torch.tensor([[START, *words[:-1]] for words in outputs])
    lengths = torch.full((len(outputs),), source.shape[1])
    forced = model.teacher_forced(reading(source.expand(len(outputs), -1), lengths), inputs, return_weights=True)
    log_probs = model.decoder.logits(forced).double().log_softmax(-1)
    found = []
    for words, each, weights in zip(outputs, log_probs.tolist(), forced.weights.double().mean(1).tolist(), strict=True):
        total = sum(row[word] for row, word in zip(each, words, strict=True))
        seen = [sum(column) for column in zip(*weights, strict=True)]
        found.append(total / NORMS[norm](len(words), alpha) + beta * sum(math.log(min(once, 1.0)) for once in seen))
    return found


def every_output(limit):
    for size in range(1, limit + 1):
        for words in itertools.product(range(VOCABULARY), repeat=size):
            if END not in words[:-1] and (words[-1] == END or size == limit):
                yield words


@pytest.mark.parametrize(("norm", "alpha", "beta"), [("gnmt", 0.6, 0.7), ("power", 0.6, 2.0)])
@torch.no_grad()
def test_a_wide_beam_ranks_all_outputs_by_the_formula(norm, alpha, beta):
    """Two sentences of two lengths: what pads the shorter one is no word that could be looked at."""
    torch.manual_seed(3)
    model, sources = tiny(HEADS, vocabulary=VOCABULARY, scale=2.5), [[4, 5, 4, 5, 5], [5, 4]]
    padded, lengths = batch(*sources)
    memory = model.encode(reading(padded, lengths))
    step, state = model.start(memory)
    outputs = list(every_output(2))
    found = beam_search(
        *bounded(step, state, [2, 2]), width=len(outputs), end=END, length_penalty=alpha,
        length_norm=norm, coverage=Coverage(beta, memory.visible),
    )  # fmt: skip
    for source, hypotheses in zip(sources, found, strict=True):
        expected = []
        for _, some in itertools.groupby(outputs, len):
            alike = list(some)
            scores = score_all(model, torch.tensor([source]), alike, norm, alpha, beta)
            expected += zip(scores, alike, strict=True)
        expected.sort(reverse=True)
        assert [one.score for one in hypotheses] == pytest.approx([value for value, _ in expected], abs=1e-4)
        assert [one.tokens for one in hypotheses[:9]] == [[word for word in words if word != END] for _, words in expected[:9]]


@pytest.mark.parametrize("width", [1, 3])
@torch.no_grad()
def test_what_a_search_finds_has_the_score_of_the_formula(width):
    """Weights follow their hypotheses when the beam re-orders them; greedy counts no look of a sentence that has ended."""
    torch.manual_seed(5)
    model, sources = tiny(HEADS, vocabulary=VOCABULARY, scale=2.5), [[4, 5, 4, 5, 5, 4], [5, 4], [4, 4, 5]]
    padded, lengths = batch(*sources)
    memory = model.encode(reading(padded, lengths))
    given = bounded(*model.start(memory), lengths + 3)
    ways = {"end": END, "length_penalty": 0.8, "length_norm": "gnmt"}
    searches = [lambda **more: beam_search(*given, width=width, **more)]
    searches += [lambda **more: greedy_search(*given, **more)] if width == 1 else []
    for search in searches:
        for source, hypotheses in zip(sources, search(**ways, coverage=Coverage(0.5, memory.visible)), strict=True):
            for one in hypotheses:
                words = [*one.tokens, END] if len(one.tokens) < len(source) + 3 else one.tokens
                assert one.score == pytest.approx(score(model, torch.tensor([source]), words, "gnmt", 0.8, 0.5), abs=1e-4)


def looking(rows, looks):
    """rows[last word][next word] are probabilities, looks[last word] where the step looks."""

    def step(tokens, state):
        return Step(torch.tensor(rows).log()[tokens], torch.tensor(looks)[tokens][:, None], state)

    return step


@pytest.mark.parametrize(("search", "more"), [(beam_search, {"width": 3}), (beam_search, {"width": 2}), (greedy_search, {})])
def test_looks_stay_with_the_output_that_looked(search, more):
    """The second word turns the order of the beam, and the first sentence stops long before the second."""
    rows = [[0.5, 0.1, 0.0, 0.4], [0.0, 0.9, 0.0, 0.1], [0.6, 0.4, 0.0, 0.0], [0.25] * 4]
    looks = [[0.2, 0.0], [0.0, 0.3], [0.05, 0.1], [0.0, 0.0]]
    ways = {"end": 3, "length_penalty": 1.0, "length_norm": "gnmt"}
    coverage = Coverage(0.5, torch.ones(2, 2, dtype=torch.bool))
    for limit, found in zip(
        (2, 6),
        search(*bounded(looking(rows, looks), torch.zeros(2, 1), [2, 6]), **ways, **more, coverage=coverage),
        strict=True,
    ):
        for one in found:
            words = [*one.tokens, 3][:limit]
            total = sum(math.log(rows[last][word]) for last, word in zip([2, *words], words, strict=False))
            seen = [sum(looks[last][place] for last in [2, *words[:-1]]) for place in range(2)]
            cover = sum(math.log(min(max(once, 1e-9), 1.0)) for once in seen)
            assert one.score == pytest.approx(total / ((5 + len(words)) / 6) + 0.5 * cover, abs=1e-5)


def test_the_penalty_prefers_an_output_that_looked_at_everything():
    # from the start: word 0 (0.55) or 1 (0.45), then the end; after 0 the look is at the first word again, after 1 at the other
    rows = [[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.55, 0.45, 0.0, 0.0], [0.25] * 4]
    step = looking(rows, [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    given, ways = bounded(step, torch.zeros(1, 1), [3]), {"width": 2, "end": 3}
    visible = torch.tensor([[True, True]])
    plain = beam_search(*given, **ways)[0]
    covered = beam_search(*given, **ways, coverage=Coverage(0.1, visible))[0]
    assert [one.tokens for one in plain] == [[0], [1]]
    assert [one.tokens for one in covered] == [[1], [0]]
    assert covered[0].score == pytest.approx(math.log(0.45))
    assert covered[1].score == pytest.approx(math.log(0.55) + 0.1 * math.log(1e-9))  # never looked at, yet not impossible


def test_a_model_without_attention_has_no_coverage():
    for search, more in ((beam_search, {"width": 2}), (greedy_search, {})):
        with pytest.raises(UserError, match="no attention"):
            search(
                *bounded(lambda tokens, state: Step(torch.zeros(len(tokens), 5), None, state), torch.zeros(1, 1), [3]), end=3,
                coverage=Coverage(0.2, torch.ones(1, 2, dtype=torch.bool)), **more,
            )  # fmt: skip


@pytest.mark.parametrize("beam", [1, 3])
def test_a_recipe_says_how_to_rank_and_a_call_may_say_otherwise(beam):
    """Of one and the same output: the scores that the settings ask for, from the weights that `decode` gives."""
    inputs = ["a b c", "c a"]
    tokenizer = train_tokenizer(Tokenizer(kind="word"), inputs)
    model = tiny(HEADS, vocabulary=len(tokenizer), scale=2.0)
    model.decoder.output.bias.data[END] += 3
    decoding = Decoding(beam=beam, length_penalty=0.5, length_norm="gnmt", coverage_penalty=0.3)
    trained = TrainedGenerator(Bundle(model, texts(tokenizer, tokenizer), decoding))
    for change, (norm, alpha, beta) in (
        ({}, ("gnmt", 0.5, 0.3)),
        ({"length_norm": "power", "length_penalty": 0.7, "coverage_penalty": 1.1}, ("power", 0.7, 1.1)),
    ):
        found = trained.search(inputs, **change)
        assert trained.generate(inputs, **change) == [hypotheses[0].text for hypotheses in found]
        for text, hypotheses in zip(inputs, found, strict=True):
            source = torch.tensor([[*tokenizer.encode([text])[0], END]])
            for one in hypotheses:
                words = [*one.tokens, END] if len(one.tokens) < 3 * source.shape[1] + 10 else one.tokens
                assert one.score == pytest.approx(score(model, source, words, norm, alpha, beta), abs=1e-4)
