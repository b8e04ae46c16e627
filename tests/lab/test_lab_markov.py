"""A tagger beside exact posteriors: nothing between them where it is exact, and what the definition says where it is not."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from regard.corpora.markov import CHAIN
from regard.errors import UserError
from regard.lab.markov import divergence, divergences

TEXTS = ["a b b d c a", "d d a", "c"]


def says(function, names=("Q3", "Q1", "Q2")):
    """A tagger that says what a function does, its labels in an order of its own."""
    order = [CHAIN.states.index(name) for name in names if name in CHAIN.states]
    found = [torch.from_numpy(function(text.split())[:, order]) for text in TEXTS]
    return SimpleNamespace(labels=SimpleNamespace(names=list(names)), distributions=lambda texts: found)


def test_what_is_exact_does_not_diverge_and_the_other_algorithm_does():
    for function, own, other in (
        (CHAIN.forward, "forward", "forward_backward"),
        (CHAIN.forward_backward, "forward_backward", "forward"),
    ):
        found = divergences(says(function), TEXTS)
        assert found[own].mean == pytest.approx(0, abs=1e-12)
        assert found[other].mean > 0.01


def test_the_divergence_by_hand():
    exact, found = [np.array([[0.5, 0.5], [1.0, 1e-300]])], [np.array([[0.25, 0.75], [0.5, 0.5]])]
    expected = (0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75) + math.log(2)) / 2
    assert divergence(exact, found).mean == pytest.approx(expected)


def test_a_tagger_of_other_labels_is_refused():
    with pytest.raises(UserError, match="this model gives N, V; one of the corpus markov gives Q1, Q2, Q3"):
        divergences(SimpleNamespace(labels=SimpleNamespace(names=["N", "V"])), TEXTS)
