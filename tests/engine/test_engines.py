"""Engines against the models they were made of: the same logits, weights and outputs, however rows are re-ordered."""

import pytest
import torch
from bounded import bounded
from kinds import KINDS, small
from tiny import END, FEW, SETTINGS, SOON, batch, tiny

from regard.data.batching import reading
from regard.decoding.beam import beam_search
from regard.decoding.greedy import greedy_search
from regard.engine import engines
from regard.engine.engines import DECODERS, ENCODERS, engine_for
from regard.errors import UserError
from regard.nn.linear import Linear
from regard.nn.state import repeat_rows, select_rows

SOURCES = [[4, 5, 6, 7, 8, 4, 3], [8, 3], [5, 5, 7, 3]]
RECURRENT = {f"recurrent-{name}": SETTINGS[name] for name in [*sorted(SOON)[::4], *FEW]}


def model_of(name, scale=1.0):
    return tiny(RECURRENT[name], scale=scale) if name in RECURRENT else small(KINDS[name], scale=scale)


def is_for_engines(values):
    return values.get("kind", "sequence_to_sequence") == "sequence_to_sequence"


NAMES = [name for name, values in KINDS.items() if is_for_engines(values)] + list(RECURRENT)
REWRITTEN = (
    "positions-sinusoid", "positions-learned", "positions-index", "positions-none", "norm-rms-post", "norm-batch-post",
    "feedforward-gelu", "feedforward-swiglu", "untied-bias", "read-by-a-gru",
)  # fmt: skip
WHOLE = [*(f"transformer-{name}" for name in REWRITTEN), *RECURRENT]


def encoded(model):
    return model.encode(reading(*batch(*SOURCES)))


@pytest.mark.parametrize("name", NAMES)
@torch.inference_mode()
def test_steps_of_an_engine_are_those_of_its_model(name):
    """Also while hypotheses are re-ordered, dropped and doubled: caches that are never moved equal caches that are copied."""
    model = model_of(name)
    both = [(encoded(one), one) for one in (model, engine_for(model, "float32").model)]
    (step, state), (fast, own) = (one.start(memory) for memory, one in both)
    state, own, words = repeat_rows(state, 2), repeat_rows(own, 2), torch.full((6,), 2)
    for _ in range(4):
        expected, found = step(words, state), fast(words, own)
        torch.testing.assert_close(found.logits, expected.logits, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found.weights, expected.weights, atol=1e-5, rtol=1e-5)
        rows = torch.tensor([0, 2, 4]).repeat_interleave(2) + torch.randint(2, (6,))
        state, own, words = select_rows(expected.state, rows), select_rows(found.state, rows), torch.randint(4, 9, (6,))


@pytest.mark.parametrize("by", ["one call", "layers"])
@torch.inference_mode()
def test_hypotheses_become_fewer(by):
    """Down to one a sentence, whose past lies where others were written."""
    model = model_of("transformer-positions-sinusoid")
    engine = engine_for(model, "float32").model
    if by == "layers":
        engine.decoder.whole = None
    both = [one.start(encoded(one)) for one in (model, engine)]
    (step, state), (fast, own) = ((step, repeat_rows(state, 4)) for step, state in both)
    for width in (3, 2, 1, 1):
        words, rows = torch.randint(4, 9, (len(own.ancestors),)), torch.randint(width + 1, (3, width))
        expected, found = step(words, state), fast(words, own)
        torch.testing.assert_close(found.logits, expected.logits, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(found.weights, expected.weights, atol=1e-5, rtol=1e-5)
        rows = (torch.arange(3)[:, None] * (len(words) // 3) + rows.clamp(max=len(words) // 3 - 1)).flatten()
        state, own = select_rows(expected.state, rows), select_rows(found.state, rows)


@pytest.mark.parametrize("name", [name for name in NAMES if name in KINDS or name.removeprefix("recurrent-") in FEW])
@torch.inference_mode()
def test_searches_find_the_same(name):
    model = model_of(name, scale=1.5)
    limits = [9, 5, 7]
    for search in (lambda *given: greedy_search(*given, end=END), lambda *given: beam_search(*given, width=3, end=END)):
        expected, found = (
            search(*bounded(*one.start(encoded(one)), limits)) for one in (model, engine_for(model, "float32").model)
        )
        assert [[one.tokens for one in each] for each in found] == [[one.tokens for one in each] for each in expected]
        scores = [[one.log_prob for each in side for one in each] for side in (found, expected)]
        torch.testing.assert_close(*scores, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_what_has_no_engine_says_why_and_stays_the_models_own(name):
    model = model_of(name)
    engine = engine_for(model, "int8")
    assert set(engine.own) <= {"encoder", "decoder"}
    assert all(engine.own.values())
    for part in ("encoder", "decoder"):
        assert (getattr(engine.model, part) is getattr(model, part)) == (part in engine.own)
    if name in WHOLE:
        assert not engine.own


def test_a_model_without_parts_of_these_kinds_keeps_them_all():
    model = small(next(values for values in KINDS.values() if values.get("kind") == "decoder_alone"))
    engine = engine_for(model, "int8")
    assert engine.own == {name: f"{type(part).__name__} has no engine" for name, part in model._modules.items()}


@pytest.mark.parametrize("name", ["transformer-positions-sinusoid", "transformer-norm-rms-post", *list(RECURRENT)[:3]])
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@torch.inference_mode()
def test_rounded_weights_decode_a_sentence_alike_in_any_batch(name, precision):
    model = engine_for(model_of(name, scale=1.5), precision).model

    def decode(sources):
        padded, lengths = batch(*sources)
        return beam_search(*bounded(*model.start(model.encode(reading(padded, lengths))), lengths + 3), width=3, end=END)

    together = decode(SOURCES)
    for row, source in enumerate(SOURCES):
        (alone,) = decode([source])
        assert [one.tokens for one in alone] == [one.tokens for one in together[row]]
        atol = 1e-4 if precision == "int8" else 2e-2
        torch.testing.assert_close(
            [one.log_prob for one in alone], [one.log_prob for one in together[row]], atol=atol, rtol=1e-3
        )


@pytest.mark.parametrize("name", ["transformer-positions-sinusoid", "recurrent-lstm-general-input_feeding"])
@torch.inference_mode()
def test_every_product_is_the_engines(name, monkeypatch):
    """Of every Linear of both sides, or of those that lie in one product with it."""
    used = set()

    def watched(weight, bias):
        def product(inputs):
            used.add(id(weight))
            return torch.nn.functional.linear(inputs, weight, bias)

        packed.append(id(weight))
        return product

    packed = []
    monkeypatch.setitem(engines.PRECISIONS, "float32", watched)
    model = model_of(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    engine = engine_for(model, "float32")
    step, state = engine.model.start(encoded(engine.model))
    step(torch.full((3,), 2), state)
    assert used == set(packed)
    own = [part for part in model.modules() if isinstance(part, Linear)]
    joined = (
        2 * len(list(model.encoder.stack.layers)) + 3 * len(list(model.decoder.stack.layers)) if "transformer" in name else 0
    )
    assert len(packed) == len(own) - joined
    assert all(value.equal(before[key]) for key, value in model.state_dict().items())


@torch.inference_mode()
def test_a_state_is_stepped_from_once():
    model = engine_for(model_of("transformer-positions-sinusoid"), "float32").model
    step, state = model.start(encoded(model))
    step(torch.full((3,), 2), state)
    with pytest.raises(AssertionError, match="stepped from once"):
        step(torch.full((3,), 2), state)


@torch.inference_mode()
def test_caches_and_places_grow_with_long_outputs():
    model = model_of("transformer-positions-sinusoid")
    both = [(encoded(one), one) for one in (model, engine_for(model, "float32").model)]
    (step, state), (fast, own) = (one.start(memory) for memory, one in both)
    for _ in range(70):
        words = torch.randint(4, 9, (3,))
        expected, found = step(words, state), fast(words, own)
        state, own = expected.state, found.state
    torch.testing.assert_close(found.logits, expected.logits, atol=1e-5, rtol=1e-5)


def test_unknown_precisions_are_refused():
    with pytest.raises(UserError, match="unknown precision 'int9'; did you mean 'int8'"):
        engine_for(model_of("transformer-positions-sinusoid"), "int9")


def test_engines_are_of_parts_that_models_have():
    from regard.models.decoders import DECODERS as ALL_DECODERS
    from regard.models.encoders import ENCODERS as ALL_ENCODERS

    assert set(ENCODERS) <= set(ALL_ENCODERS.values())
    assert set(DECODERS) <= set(ALL_DECODERS.values())
