"""The kernels of a decoding step under Triton's interpreter: test_interpreted.py runs this file with TRITON_INTERPRET=1."""

import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "decoding"))
import step_trials as trials
from test_static import TEXTS, in_use, reader_of_images, same, same_of_images

from regard.nn.kernels.steps import product, words

assert os.environ.get("TRITON_INTERPRET") == "1"


@pytest.mark.parametrize("width", [1, 2, 3])
def test_attention_to_a_past_is_the_formula(width):
    trials.try_past(width)


@pytest.mark.parametrize("width", [1, 2])
def test_attention_to_a_sentence_is_the_formula(width):
    trials.try_sentence(width)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"norm": "layer", "other": "layer"},
        {"norm": "rms", "relu": True, "adds": False},
        {"other": "rms", "biased": False},
        {"size": 1100, "wide": 30},
        {"size": 4100, "wide": 9, "relu": True},  # longer than what is read of a row at a time
    ],
    ids=str,
)
def test_products_are_the_formula(rows, how):
    trials.try_product(rows, **how)


@pytest.mark.parametrize("how", [{"norm": "layer", "other": "layer"}, {"size": 1100, "other": "rms"}], ids=str)
def test_products_of_more_rows(how, monkeypatch):
    """As numbers of 16 bits are multiplied."""
    monkeypatch.setattr(product, "applies", lambda states: True)
    trials.try_product(19, **how)


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize(
    ("batch", "width", "count", "vocabulary"), [(3, 3, 6, 50), (2, 5, 10, 37), (3, 1, 2, 5), (2, 2, 4, 130)]
)
def test_the_best_words_are_those_of_all(batch, width, count, vocabulary, least, monkeypatch):
    monkeypatch.setattr(words, "BLOCK", 64)
    trials.try_best(batch, width, count, vocabulary, least)


@pytest.mark.parametrize("least", [False, True])
def test_a_greedy_step_is_the_formula(least, monkeypatch):
    monkeypatch.setattr(words, "BLOCK", 64)
    trials.try_greedily(7, 200, least)


@pytest.mark.parametrize("least", [False, True])
def test_what_is_no_number_stays_none(least, monkeypatch):
    monkeypatch.setattr(words, "BLOCK", 64)
    trials.try_no_number(least)


def test_words_enter():
    trials.try_enter()


@pytest.mark.parametrize("name", ["transformer-positions-learned", "transformer-positions-index"])
@pytest.mark.parametrize("beam", [1, 3])
def test_whole_searches_are_those_of_growing_tensors(name, beam):
    trained = in_use(name, dtype=torch.float32)
    same(trained, TEXTS[:4], beam=beam, max_length=6, min_length=2)
    assert trained.slotted.strides.fused is not None


def test_outputs_of_images_that_outgrow_their_first_room():
    trained, images = reader_of_images(dtype=torch.float32)
    assert max(same_of_images(trained, images[:1], beam=2, max_length=34)) == 34
    assert trained.slotted.strides.fused is not None
