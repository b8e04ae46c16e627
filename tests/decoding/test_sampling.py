"""Samples against enumeration: how often, from which words, and alike in any company."""

from collections import Counter

import pytest
import torch
from bounded import bounded
from enumerated import every_output, log_probs_of, spoken
from scipy.stats import chisquare
from tiny import END, FEW, SETTINGS, batch, tiny

from regard.data.batching import reading
from regard.data.fields import texts
from regard.decoding.generator import TrainedGenerator
from regard.decoding.sampling import Sampling, chances_of, draw, sample
from regard.errors import UserError
from regard.models.interface import Step

MANY = 2000


def samples(model, sources, count, seed=1, limit=3, **options):
    padded, lengths = batch(*sources)
    step, state = model.start(model.encode(reading(padded, lengths)))
    limits = torch.full_like(lengths, limit)
    chances = chances_of(sources, count, limit, seed)
    return sample(*bounded(step, state, limits), chances=chances, end=END, sampling=Sampling(seed=seed, **options))


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@torch.no_grad()
def test_outputs_come_as_often_as_they_are_probable(temperature):
    model = tiny(FEW["gru-additive-into_cell"], vocabulary=6, scale=2.5)
    outputs = list(every_output(6, 3))
    drawing, own = (log_probs_of(model, [4, 5, 4], outputs, heat) for heat in (temperature, 1.0))
    chances = drawing.exp().tolist()
    assert sum(chances) == pytest.approx(1)
    expected = dict(zip(map(spoken, outputs), zip(chances, own.tolist(), strict=True), strict=True))
    (found,) = samples(model, [[4, 5, 4]], MANY, temperature=temperature)
    often = [output for output, (chance, _) in expected.items() if chance * MANY > 8]
    counts = Counter(tuple(one.tokens) for one in found)
    seen = [counts[output] for output in often]
    hoped = [expected[output][0] * MANY for output in often]
    assert len(often) > 15
    assert chisquare([*seen, MANY - sum(seen)], [*hoped, MANY - sum(hoped)]).pvalue > 0.001
    for one in found[:50]:  # by the model itself, whatever the temperature
        assert one.log_prob == pytest.approx(expected[tuple(one.tokens)][1], abs=1e-4)


SOURCES = [[4, 5, 6, 7, 8, 4], [8], [5, 5, 7], [6, 4]]


@pytest.mark.parametrize("name", FEW)
@torch.no_grad()
def test_a_sentence_draws_alike_alone_and_in_any_batch(name):
    model = tiny(SETTINGS[name])

    def tokens(sources, count=3):
        return [[one.tokens for one in found] for found in samples(model, sources, count, limit=9)]

    together = tokens(SOURCES)
    assert tokens(SOURCES[::-1])[::-1] == together
    assert [tokens([source])[0] for source in SOURCES] == together
    assert [found[:1] for found in together] == tokens(SOURCES, count=1)
    assert len({tuple(one) for found in together for one in found}) > 9  # and not alike otherwise


def test_chances_depend_on_seed_source_sample_and_word():
    chances = chances_of([[4, 5], [5, 4]], 2, 5, seed=1)
    assert len(set(torch.cat([chances, chances_of([[4, 5], [5, 4]], 2, 5, seed=2)]).flatten().tolist())) == 40
    many = chances_of([[4]], 100, 100, seed=3)
    assert bool(((many >= 0) & (many < 1)).all())
    assert many.mean().item() == pytest.approx(0.5, abs=0.02)


SHARES = torch.tensor([[0.1, 0.4, 0.0, 0.3, 0.2]])


@pytest.mark.parametrize(
    ("options", "support"),
    [
        ({}, {0: 0.1, 1: 0.4, 3: 0.3, 4: 0.2}),
        ({"top_k": 1}, {1: 1.0}),
        ({"top_k": 2}, {1: 4 / 7, 3: 3 / 7}),
        ({"top_k": 99}, {0: 0.1, 1: 0.4, 3: 0.3, 4: 0.2}),
        ({"top_p": 0.01}, {1: 1.0}),
        ({"top_p": 0.6}, {1: 4 / 7, 3: 3 / 7}),  # the fewest words that make up 0.6: 0.4 alone does not
        ({"top_p": 0.75}, {1: 4 / 9, 3: 3 / 9, 4: 2 / 9}),
        ({"top_k": 2, "top_p": 0.5}, {1: 1.0}),  # of the best two, renormalised, the first has 4/7
        ({"temperature": 0.5}, {0: 1 / 30, 1: 16 / 30, 3: 9 / 30, 4: 4 / 30}),
        ({"temperature": 0.5, "top_p": 0.8}, {1: 16 / 25, 3: 9 / 25}),  # sharpened first: 25/30 are enough
    ],
)
def test_words_are_drawn_from_what_is_kept(options, support):
    chances = (torch.arange(10_000) + 0.5) / 10_000  # evenly, so that frequencies are exact
    words = draw(SHARES.log().expand(len(chances), -1), chances, Sampling(**options))
    counts = words.bincount(minlength=5).double() / len(words)
    assert set(counts.nonzero().flatten().tolist()) == support.keys()
    torch.testing.assert_close(
        counts[list(support)], torch.tensor(list(support.values()), dtype=torch.double), atol=2e-4, rtol=0
    )


def test_a_word_without_probability_is_never_drawn():
    edges = torch.tensor([0.0, 1 - 2.0**-40], dtype=torch.double)
    shares = torch.tensor([[0.0, 0.5, 0.5, 0.0]]).expand(2, -1)
    assert draw(shares.log(), edges, Sampling()).tolist() == [1, 2]


def test_each_sentence_stops_at_its_own_limit_and_not_a_number_is_an_error():
    def step(tokens, state):
        return Step(torch.tensor([[0.0, -torch.inf, -torch.inf, -torch.inf]]).expand(len(tokens), -1), None, state)

    ways = {"end": 3, "sampling": Sampling()}
    chances = torch.rand(2, 3, 5).double()
    found = sample(*bounded(step, torch.zeros(2, 1), [2, 5]), chances=chances, **ways)
    assert [[len(one.tokens) for one in each] for each in found] == [[2] * 3, [5] * 3]
    nothing = bounded(lambda tokens, state: Step(step(tokens, state).logits * 0, None, state), torch.zeros(2, 1), [2, 5])
    with pytest.raises(UserError, match="not-a-number"):
        sample(*nothing, chances=chances, **ways)


def test_a_trained_model_draws_texts(trained_words):
    texts = ["a b c", "", "c"]
    found = trained_words.sample(texts, count=4)
    assert [len(each) for each in found] == [4, 0, 4]
    assert trained_words.sample(texts[::-1], count=4)[::-1] == found
    assert trained_words.sample(texts, count=4, sampling=Sampling(seed=2)) != found
    for text, hypotheses in zip(texts, found, strict=True):
        for one in hypotheses:
            if trained_words.target.encode([one.text])[0] == one.tokens:
                (likelihood,) = trained_words.score([(text, one.text)])
                assert likelihood.log_prob == pytest.approx(one.log_prob, abs=1e-4)


@pytest.fixture
def trained_words():
    from regard.data.tokenizers import train_tokenizer
    from regard.models.directory import Bundle
    from regard.recipe import Decoding, Tokenizer

    source, target = (train_tokenizer(Tokenizer(kind="word"), [side]) for side in ("a b c", "x y z"))
    model = tiny(FEW["gru-additive-into_cell"], vocabulary=len(source), scale=2.0)
    model.decoder.output.bias.data[END] += 2
    return TrainedGenerator(Bundle(model, texts(source, target), Decoding(length_penalty=0.5)))


def test_what_is_drawn_is_scored_as_searches_score(trained_words):
    """log p / ((5 + length) / 6) ** 0.5 with GNMT's norm, log p / length ** 0.5 otherwise; the end mark counts."""
    for norm, divide in (("power", lambda length: length**0.5), ("gnmt", lambda length: ((5 + length) / 6) ** 0.5)):
        trained_words.decoding = trained_words.decoding.model_copy(update={"length_norm": norm})
        for one in trained_words.sample(["a b c"], 4)[0]:
            length = len(one.tokens) + 1  # in its text a mark like <s> would not show
            assert one.score == pytest.approx(one.log_prob / divide(length), rel=1e-5)


def test_the_command_line_draws(trained_words, tmp_path):
    from calling import refused, regard

    model = write_model(trained_words, tmp_path / "model")
    lines = b"a b c\n\nc\n"
    drawn = regard("generate", model, "--sample", stdin=lines)
    assert drawn.lines == [found[0].text if found else "" for found in trained_words.sample(["a b c", "", "c"])]
    assert regard("generate", model, "--sample", "--unbuffered", stdin=lines) == drawn
    rows = [row.split(" ||| ") for row in regard("generate", model, "--sample", "--n-best", "3", stdin=lines).lines]
    assert [row[0] for row in rows] == ["0", "0", "0", "1", "2", "2", "2"]
    best = regard("generate", model, "--sample", "--top-k", "1", stdin=lines)
    assert best == regard("generate", model, "--beam", "1", stdin=lines)
    others = {regard("generate", model, "--sample", "--seed", seed, stdin=lines).out for seed in range(5)}
    assert len(others) > 1
    assert "add --sample" in refused("generate", model, "--top-p", "0.9")
    assert "top_p" in refused("generate", model, "--sample", "--top-p", "1.5")


def write_model(trained, directory):
    from regard.models import configure
    from regard.models.directory import save_model
    from regard.recipe import Recipe

    setting = {"embedding_size": 5, "layers": 2}
    decoder = {**setting, "hidden_size": 8, **FEW["gru-additive-into_cell"]}
    sections = {"encoder": {**setting, "cell": "gru", "hidden_size": 4}, "decoder": decoder}
    recipe = Recipe(model=configure(sections).model_dump(mode="json"), decoding=trained.decoding)
    weights = {name: tensor.clone() for name, tensor in trained.model.state_dict().items()}
    save_model(directory, weights, recipe, trained.fields, "")
    return directory
