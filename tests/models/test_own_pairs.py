"""Stepping equals teacher forcing for every pair of score and scope that a model accepts, past the ends of their blocks."""

import pytest
import tiny_alone
import tiny_transformer
import torch
from kinds import small
from test_laws import stepped

from regard.data.batching import reading
from regard.errors import RecipeError
from regard.models import configure
from regard.nn.attention import SCOPES, SCORES

WINDOW, LENGTH = 3, 8  # a block that is whole, another, and a part of one
SOURCE = torch.tensor([[4, 5, 6, 7, 8, 5, 4], [8, 4, 6, 5, 0, 0, 0], [5, 0, 0, 0, 0, 0, 0]])
LENGTHS = torch.tensor([7, 4, 1])

MODELS = {
    "own": lambda heads: tiny_transformer.section(attention=heads),
    "cross": lambda heads: tiny_transformer.section({"cross_attention": heads}),
    "alone": lambda heads: tiny_alone.section(attention=heads, longest=20),
    "alone-two-way": lambda heads: tiny_alone.section(attention=heads, longest=20, two_way_source=True),
}


def accepted(values):
    try:
        configure(values)
    except RecipeError:
        return False
    return True


HEADS = {(score, scope): {"heads": 2, "score": score, "scope": scope, "window": WINDOW} for score in SCORES for scope in SCOPES}
CASES = [(model, *pair) for model, section in MODELS.items() for pair, heads in HEADS.items() if accepted(section(heads))]


def test_only_scopes_that_follow_earlier_looks_are_left_out():
    left = {(model, *pair) for model in MODELS for pair in HEADS} - set(CASES)
    assert left == {(model, *pair) for model in MODELS if model != "cross" for pair in HEADS if SCOPES[pair[1]].moves}


def in_time(name, score, scope):
    """`make test` takes every score with one scope and every scope with one score; the other pairs wait."""
    soon = score == "projected" or scope == "causal"
    return pytest.param(name, score, scope, marks=() if soon else pytest.mark.slow)


@torch.no_grad()
@pytest.mark.parametrize(("name", "score", "scope"), [in_time(*case) for case in CASES])
def test_stepping_equals_teacher_forcing(name, score, scope):
    model = small(MODELS[name](HEADS[score, scope]), scale=2.0).double()
    target = torch.randint(4, 9, (len(SOURCE), LENGTH))
    logits, weights = stepped(model, SOURCE, LENGTHS, target)
    torch.testing.assert_close(model(reading(SOURCE, LENGTHS), target), logits)
    torch.testing.assert_close(model.teacher_forced(reading(SOURCE, LENGTHS), target, return_weights=True).weights, weights)
