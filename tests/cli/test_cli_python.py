"""What `regard.load` returns, used from Python."""

import numpy as np
import pytest
import torch

import regard
from regard.data.batching import reading
from regard.data.tokenizers import END, START
from regard.errors import InputTypeError

TEXTS = ["amicus bellum canis", "", "liber", "insula hortus domus domus", "unknown words amicus"]


@pytest.fixture(scope="module")
def model(trained):
    return regard.load(trained)


def test_a_run_and_its_model_are_the_same(trained, model):
    assert regard.load(str(trained / "model"), device="cpu").search(TEXTS) == model.search(TEXTS)


def test_nothing_in_nothing_out(model):
    assert model.generate([]) == model.search([]) == model.score([]) == model.align([]) == []


def test_generate_returns_the_best_of_search(model):
    found = model.search(iter(TEXTS), beam=3)
    assert [len(hypotheses) for hypotheses in found] == [3, 0, 3, 3, 3]
    assert model.generate(TEXTS, beam=3) == [hypotheses[0].text if hypotheses else "" for hypotheses in found]
    assert model.generate(TEXTS)[:3] == ["AMICUS BELLUM CANIS", "", "LIBER"]


def test_hypotheses_are_ranked_by_their_score(model):
    for penalty in (0.0, 0.7):
        for hypotheses in model.search(TEXTS, beam=4, length_penalty=penalty):
            scores = [one.score for one in hypotheses]
            assert scores == sorted(scores, reverse=True)
            for one in hypotheses:
                assert one.text == model.target.decode(one.tokens)
                assert one.score == pytest.approx(one.log_prob / (len(one.tokens) + 1) ** penalty, rel=1e-5)


def test_score_is_the_sum_over_the_steps(model):
    pairs = [("amicus bellum canis", "AMICUS BELLUM"), ("liber", "CANIS CANIS LIBER"), ("domus", ""), ("", "DOMUS")]
    for (source, target), likelihood in zip(pairs, model.score(pairs), strict=True):
        tokens = [*model.target.encode([target])[0], END]
        assert likelihood.tokens == len(tokens)
        assert likelihood.log_prob == pytest.approx(stepped(model, source, tokens), abs=1e-4)


@torch.inference_mode()
def stepped(model, source, tokens):
    """log p of the tokens, one step at a time, the sentence alone."""
    ids = torch.tensor([[*model.source.encode([source])[0], END]])
    step, state = model.model.start(model.model.encode(reading(ids, torch.tensor([ids.shape[1]]))))
    total, last = 0.0, START
    for token in tokens:
        logits, _, state = step(torch.tensor([last]), state)
        total += logits.double().log_softmax(dim=-1)[0, token].item()
        last = token
    return total


def test_score_agrees_with_search(model):
    for text, hypotheses in zip(TEXTS, model.search(TEXTS, beam=3), strict=True):
        for one in hypotheses:
            assert model.score([(text, one.text)])[0].log_prob == pytest.approx(one.log_prob, abs=1e-3)


def test_alignments_are_over_words_and_links_in_range(model):
    pairs = list(zip(TEXTS, model.generate(TEXTS), strict=True))
    for (source, target), found in zip(pairs, model.align(pairs), strict=True):
        assert found.target == target.split()
        assert len(found.source) == len(source.split())
        assert found.weights.shape == (len(found.target), len(found.source))
        assert np.all((found.weights >= 0) & (found.weights.sum(axis=1) <= 1 + 1e-5)) if source else True
        assert all(i < len(found.source) and j < len(found.target) for i, j in found.links)
    assert model.align(pairs)[0].links == {(0, 0), (1, 1), (2, 2)}


def test_generate_is_the_same_on_strings_with_and_without_company(model):
    assert [model.generate([text])[0] for text in TEXTS] == model.generate(TEXTS)


def test_one_input_has_one_result(model):
    assert model.generate("liber") == model.generate(["liber"])[0] == "LIBER"
    assert model.search("liber") == model.search(["liber"])[0]
    assert model.sample("liber", 2) == model.sample(["liber"], 2)[0]
    pair = ("amicus liber", "AMICUS LIBER")
    assert model.score(pair) == model.score([pair])[0] == model.score([list(pair)])[0]
    assert model.align(pair).links == model.align([pair])[0].links == {(0, 0), (1, 1)}


@pytest.mark.parametrize(
    ("verb", "given", "told"),
    [
        ("generate", [None], r"generate takes one text \(a str\) or a list of texts; texts\[0\] is None \(NoneType\)"),
        ("generate", None, r"this is None"),
        ("generate", {"a": "b"}, r"this is \{'a': 'b'\} \(dict\)"),
        ("search", ["a", 3], r"search takes .*texts\[1\] is 3 \(int\)"),
        ("sample", b"a", r"this is b'a' \(bytes\)"),
        ("score", ["a b"], r"score takes one pair of texts .*; pairs\[0\] is 'a b' \(str\)"),
        ("score", [("a", None)], r"pairs\[0\] is \('a', None\) \(tuple\)"),
        ("score", [("a", "b", "c")], r"pairs\[0\]"),
        ("align", "x", r"align takes one pair of texts .*; this is 'x' \(str\)"),
        ("align", ["x", "y"], r"pairs\[0\] is 'x'"),
    ],
)
def test_what_is_of_another_type_is_refused_in_words(model, verb, given, told):
    with pytest.raises(InputTypeError, match=told) as caught:
        getattr(model, verb)(given)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, regard.Error)


def test_a_model_says_what_it_is(model, trained):
    told = repr(model)
    size = sum(parameter.numel() for parameter in model.model.parameters())
    for part in (
        str(trained),
        "sequence_to_sequence",
        "cell=gru",
        "hidden_size=32",
        f"{size:,} parameters on cpu",
        "word of 14",
    ):
        assert part in told
    assert repr(model.search("liber")[0]).startswith("Hypothesis('LIBER', 1 tokens, log_prob=-")
    assert "'LIBER' from 'liber'" in repr(model.align(("liber", "LIBER")))
