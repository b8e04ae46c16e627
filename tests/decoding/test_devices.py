"""Searches compute where the model is. No GPU is needed to see it: of tensors on a stand-in for one, which have shapes and no
elements, an operator over two devices is refused as CUDA refuses it."""

import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from kinds import KINDS, small
from tiny import FEW, SETTINGS, tiny

from regard.data.batching import reading
from regard.data.tokenizers import END, START, CharacterTokenizer
from regard.decoding.beam import BeamSearch
from regard.decoding.greedy import GreedySearch
from regard.decoding.ranking import STOPS, Coverage, normaliser
from regard.decoding.rules import Request, requested, ruled
from regard.decoding.strides import Given, Strides, problem
from regard.recipe import Decoding

ELSEWHERE = torch.device("meta")
TARGET = CharacterTokenizer(list("abcde"))
WRITING = [name for name, values in KINDS.items() if values.get("kind", "sequence_to_sequence") == "sequence_to_sequence"]
NAMES = [name for name in (*FEW, *WRITING) if "experts" not in name]  # whose gates ask for autocast, which the stand-in lacks
ASKING = ("convolutional", "bytenet")  # decoders that look at the places of words to refuse one too many


@pytest.fixture
def make(monkeypatch):
    """Lengths are not looked at to refuse wrong ones, which a GPU does without waiting."""
    monkeypatch.setattr(import_module("regard.nn.recurrent.scan"), "check", lambda *given: None)
    return lambda name: (tiny(SETTINGS[name]) if name in SETTINGS else small(KINDS[name])).to(ELSEWHERE)


@contextmanager
def no_elements():
    with FakeTensorMode(allow_non_fake_inputs=True), torch.inference_mode():
        yield torch.empty(3, 4, dtype=torch.long, device=ELSEWHERE), torch.empty(3, dtype=torch.long, device=ELSEWHERE)


def searches(coverage):
    normalise = normaliser("power", 1.0)
    yield GreedySearch(END, normalise)
    for groups in (1, 2):
        yield BeamSearch(3, END, normalise, STOPS["best"], coverage=coverage, groups=groups, diversity=0.5)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(ASKING)])
def test_every_step_is_where_the_model_is(name, make):
    model = make(name)
    with no_elements() as (source, lengths):
        batch = reading(source, lengths)
        memory = model.encode(batch)
        coverage = Coverage(0.3, memory.visible) if model.decoder.has_attention else None
        request = Request(Decoding(min_length=2, repetition_penalty=1.2), batch, lengths, TARGET, model.limits)
        for search in searches(coverage):
            step, state = ruled(*model.start(memory), requested(request))
            progress = search.begin(state, torch.full((3,), START, device=ELSEWHERE))
            for _ in range(3):
                progress = search.advance(step, progress)
            assert progress.going.device == ELSEWHERE


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("beam", [1, 4])
def test_every_stride_is_where_the_model_is(name, beam, make):
    model, settings = make(name), Decoding(beam=beam, max_length=9, min_length=2)
    if problem(model, settings) is not None:
        pytest.skip("no State that keeps its shape")
    strides = Strides(model, TARGET, settings)
    with no_elements() as (source, lengths):
        given = Given(model.encode(reading(source, lengths)), lengths)
        going = strides(given, strides.begin(given, 8), 2, 8)
        assert going.open.device == going.place.device == ELSEWHERE


def test_a_tensor_left_on_the_cpu_is_found(make):
    """So that what is asked above can be answered with no."""
    model = make("transformer-positions-sinusoid")
    with no_elements() as (source, lengths):
        step, state = model.start(model.encode(reading(source, lengths)))
        logits = step(source[:, 0], state).logits
        with pytest.raises(RuntimeError, match=r"two (different )?devices"):
            logits + torch.zeros(3, 1)
