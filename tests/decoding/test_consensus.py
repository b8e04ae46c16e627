"""Minimum Bayes risk against the sum written out, and from the command line."""

import math

import numpy as np
import pytest
from calling import refused, regard
from test_sampling import write_model

from regard.decoding.consensus import consensus
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.sampling import Sampling
from regard.evaluation.metrics import rewards

TEXTS = ["a b c", "a b", "a b d", "x y", "a b", "a b c d"]


def shared(output, truth):
    """Not symmetric: the share of the output's words that are true."""
    return len(set(output.split()) & set(truth.split())) / len(output.split())


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("utility", [shared, rewards()["chrf"]])
def test_the_best_is_most_like_the_others(utility, sampled):
    log_probs = [-1.0, -2.0, -0.5, -0.1, -3.0, -0.7]
    found = [Hypothesis(text, [], log_prob, log_prob) for text, log_prob in zip(TEXTS, log_probs, strict=True)]
    weights = np.ones(6) if sampled else np.exp(log_probs)
    matrix = np.array([[utility(one, other) for other in TEXTS] for one in TEXTS])
    expected = dict(zip(TEXTS, (matrix @ (weights / weights.sum())).tolist(), strict=True))
    ranked = consensus(found, utility, sampled)
    assert {one.text: one.score for one in ranked} == pytest.approx(expected)
    assert [one.score for one in ranked] == sorted((one.score for one in ranked), reverse=True)
    assert len(ranked) == len(set(TEXTS))
    assert ranked[0].text != "x y" or not sampled
    assert consensus([], utility) == []


def test_the_command_line_takes_the_output_that_agrees_most(trained_letters, tmp_path):
    run, lines = write_model(trained_letters, tmp_path / "model"), ["b b", " ", "bb b bb"]
    stdin = "\n".join(lines).encode()
    drawn = trained_letters.sample(lines, 12, Sampling(seed=3), max_length=9)
    expected = [consensus(found, rewards()["chrf"]) for found in drawn]
    ways = ("--sample", "--candidates", "12", "seed=3", "max_length=9")
    assert regard("generate", run, "--mbr", "chrf", *ways, stdin=stdin).lines == [found[0].text for found in expected]
    scored = regard("generate", run, "--mbr", "chrf", "--scores", *ways, stdin=stdin).lines
    assert [float(row.split("\t")[0]) for row in scored] == pytest.approx([found[0].score for found in expected], abs=1e-5)
    beams = trained_letters.search(lines, beam=5, max_length=9)
    expected = [consensus(found, rewards()["chrf"], sampled=False)[0].text for found in beams]
    assert regard("generate", run, "--mbr", "chrf", "--candidates", "5", "max_length=9", stdin=stdin).lines == expected
    assert any(math.isfinite(found[0].score) for found in beams)
    assert "unknown metric of a sentence 'chf'; did you mean 'chrf'" in refused("generate", run, "--mbr", "chf")
    assert "add --mbr" in refused("generate", run, "--candidates", "5")
