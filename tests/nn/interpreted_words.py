"""Kernels of words under Triton's interpreter; run by test_interpreted.py."""

import os

import pytest
import torch
from test_layer_kernels import distance
from test_word_kernels import PATTERNS, check_entered, table_and_exact

from regard.nn.kernels.layers import words
from regard.nn.positions import POSITIONS

assert os.environ.get("TRITON_INTERPRET") == "1"


@pytest.mark.parametrize("rate", [0.0, 0.25])
@pytest.mark.parametrize("rows", [1, 3])
def test_words_enter(rate, rows):
    check_entered(rate, rows=rows)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_gradient_of_a_table(name):
    assert distance(*table_and_exact(PATTERNS[name])) < 1e-6


def test_rows_wider_than_a_program(monkeypatch):
    monkeypatch.setattr(words, "COLUMNS", 16)
    assert distance(*table_and_exact(PATTERNS["runs over many blocks"], size=40)) < 1e-6


def test_places_that_learn_get_their_gradient():
    states, places = torch.randn(2, 3, 4), torch.randn(1, 3, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(words.entered(states, places, scale=2.0).sum(), places)
    torch.testing.assert_close(gradient, torch.full((1, 3, 4), 2.0))


@pytest.mark.parametrize("name", POSITIONS)
def test_words_of_every_kind_of_positions_enter_as_the_plain_way(name):
    torch.manual_seed(1)
    positions, states, places = POSITIONS[name](8, 2), torch.randn(2, 5, 8), torch.arange(5)[None]
    found = positions.enter(states, places, 3.0, 0.0)
    expected = 3.0 * states + positions.encode(places) if positions.absolute else 3.0 * states
    torch.testing.assert_close(found, expected)
