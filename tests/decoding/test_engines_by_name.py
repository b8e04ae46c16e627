"""`--engine`: each writes what the model itself writes, or says why it cannot."""

import importlib.util

import pytest
import torch
from exchanged import TOKENIZER, bundle, save, sources
from tiny_transformer import section

from regard import load
from regard.data.tokenizers import END
from regard.decoding.engines import ENGINES
from regard.decoding.hypothesis import END_MARK
from regard.decoding.sampling import Sampling
from regard.decoding.translator import SHARED, Translator, foreign_setting
from regard.engine import native
from regard.errors import InputError, UserError
from regard.recipe import Decoding

needs_ctranslate2 = pytest.mark.skipif(importlib.util.find_spec("ctranslate2") is None, reason="CTranslate2 is not installed")
LINES = sources(25, 9)
ALIKE = ({"beam": 1}, {"beam": 5, "length_penalty": 0.0}, {"beam": 4, "length_penalty": 0.7, "stop": "first"})
OTHERS = {
    "min_length": {"min_length": 3}, "no_repeat_ngram": {"no_repeat_ngram": 2}, "coverage_penalty": {"coverage_penalty": 0.3},
    "groups": {"groups": 2, "beam": 4}, "length_norm": {"length_norm": "gnmt"}, "stop": {"stop": "best"}, "ban": {"ban": ["a"]},
    "min_ratio": {"min_ratio": 0.5}, "repetition_penalty": {"repetition_penalty": 1.2},
}  # fmt: skip


def stored(folder, chance=3.0, seed=2, **more):
    """A model whose outputs end, some of them, before their limit."""
    torch.manual_seed(seed)
    given = bundle(section({"output_bias": True, "tied": False}), **{"max_length": 8, "stop": "first", **more})
    with torch.no_grad():
        given.model.decoder.output.bias[END] += chance
    return save(given, folder / "model")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return stored(tmp_path_factory.mktemp("engines"))


@pytest.fixture
def no_kernels(monkeypatch):
    """A machine without a compiler."""
    monkeypatch.setattr(native, "library", lambda: None)


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs_ctranslate2) for name in ENGINES if name != "torch"])
@pytest.mark.parametrize("settings", ALIKE, ids=str)
def test_each_finds_what_the_model_finds(name, settings, model):
    expected, found = (one.search(LINES, **settings) for one in (load(model, "cpu"), load(model, engine=name)))
    ends = {one.end for each in expected for one in each}
    assert END_MARK in ends
    assert len(ends) > 1
    for ours, theirs in zip(expected, found, strict=True):
        assert [(one.text, one.tokens, one.end) for one in theirs] == [(one.text, one.tokens, one.end) for one in ours]
        for key in ("score", "log_prob"):
            numbers = [torch.tensor([getattr(one, key) for one in each]) for each in (ours, theirs)]
            torch.testing.assert_close(*numbers, atol=1e-4, rtol=1e-4)


@needs_ctranslate2
@pytest.mark.skipif(native.library() is None, reason="no compiler, or a processor without AVX512-VNNI")
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_auto_takes_our_own_where_it_is_compiled_for_one_thread(precision, model, monkeypatch):
    own = load(model, precision=precision, engine="auto")
    assert own.translator is None
    assert own.written_by == f"regard's own engine, in {precision}, compiled for this processor"
    torch.set_num_threads(2)
    several = load(model, precision=precision, engine="auto")
    torch.set_num_threads(1)
    assert several.written_by.startswith("CTranslate2")
    monkeypatch.setattr(native, "library", lambda: None)
    assert load(model, precision=precision, engine="auto").written_by.startswith("CTranslate2")


@needs_ctranslate2
@pytest.mark.parametrize("settings", [{"beam": 1}, {"beam": 3, "length_penalty": 0.0}], ids=str)
def test_each_output_has_a_limit_of_its_own(settings, tmp_path):
    """Of 11 to 15 tokens, by the length of its source."""
    model = stored(tmp_path, chance=-3.0)
    short = load(model, engine="ctranslate2")
    changed = {**settings, "max_ratio": 0.5, "max_length": 15}
    expected = load(model, "cpu").search(LINES, **changed)
    assert len({len(each[0].tokens) for each in expected}) > 2
    found = short.search(LINES, **changed)
    assert [[(one.tokens, one.end) for one in each] for each in found] == [
        [(one.tokens, one.end) for one in each] for each in expected
    ]


@needs_ctranslate2
@pytest.mark.parametrize("key", OTHERS)
def test_what_ctranslate2_does_not_have_is_said_or_done_without_it(key, model, monkeypatch, no_kernels):
    settings = {"beam": 2, "length_penalty": 1.0, **OTHERS[key]}
    with pytest.raises(UserError, match=f"{key}|--engine auto"):
        load(model, engine="ctranslate2").search(LINES[:3], **settings)
    monkeypatch.setattr(Translator, "search", lambda *_: pytest.fail("CTranslate2 was asked"))
    found, expected = load(model, engine="auto").search(LINES[:3], **settings), load(model, "cpu").search(LINES[:3], **settings)
    assert [[one.tokens for one in each] for each in found] == [[one.tokens for one in each] for each in expected]


@needs_ctranslate2
def test_so_is_what_else_a_search_can_be_asked(model, no_kernels):
    strict, auto, own = load(model, engine="ctranslate2"), load(model, engine="auto"), load(model, "cpu")
    for ask in (
        lambda one: one.sample(LINES[:2], 3, Sampling(seed=5)),
        lambda one: one.search(LINES[:2], beam=1, token_scores=True),
        lambda one: one.search(LINES[:2], beam=1, constraints=[{"ban": ["a"]}, {}]),
        lambda one: one.search(LINES[:2], beam=1, on_step=lambda _: None),
    ):
        with pytest.raises((UserError, InputError), match="CTranslate2 cannot write this"):
            ask(strict)
        assert [[one.tokens for one in each] for each in ask(auto)] == [[one.tokens for one in each] for each in ask(own)]
    with pytest.raises(UserError, match="it has no cache"):
        strict.search(LINES[:2], beam=1, cache="static")


def test_every_setting_is_shared_or_asked_for_in_vain():
    plain = Decoding(beam=1)
    assert foreign_setting(plain) is None
    assert Decoding.model_fields.keys() >= SHARED
    changed = {
        "must": ["a"],
        "ban": ["a"],
        "prefix": "a",
        "pattern": "a",
        "only_words": "f",
        "replace_unknown": True,
        "cache": "static",
    } | {key: value for settings in OTHERS.values() for key, value in settings.items()}
    for key in Decoding.model_fields.keys() - SHARED - {"diversity"}:
        assert foreign_setting(Decoding.model_construct(**{**plain.model_dump(), key: changed[key]})) is not None, key


@needs_ctranslate2
def test_a_converted_model_is_kept_and_made_again_for_other_weights(tmp_path, no_kernels):
    model, kept = stored(tmp_path), tmp_path / "model-ctranslate2-float32"
    load(model, engine="ctranslate2")
    before = (kept / "manifest.json").stat().st_mtime_ns
    load(model, engine="auto")
    assert (kept / "manifest.json").stat().st_mtime_ns == before
    stored(tmp_path, seed=1)
    expected = load(model, "cpu").generate(LINES, beam=1)
    assert load(model, engine="ctranslate2").generate(LINES, beam=1) == expected
    assert (kept / "manifest.json").stat().st_mtime_ns != before
    (kept / "model.bin").write_bytes(b"spoilt")
    assert load(model, engine="ctranslate2").generate(LINES, beam=1) == expected


def test_without_ctranslate2_its_name_is_refused_and_auto_takes_our_own(model, monkeypatch, no_kernels):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'regard\[export\]'"):
        load(model, engine="ctranslate2")
    trained = load(model, engine="auto")
    assert "regard's own engine, in float32 (CTranslate2 is not installed" in trained.written_by
    assert trained.generate(LINES) == load(model, "cpu").generate(LINES)


@pytest.mark.parametrize(("engine", "precision", "said"), [
    ("ctranslate2", "bfloat16", "no bfloat16"), ("torch", "int8", "--engine native"), ("natve", None, "did you mean 'native'"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(engine, precision, said, model):
    with pytest.raises(UserError, match=said):
        load(model, precision=precision, engine=engine)


@needs_ctranslate2
def test_a_model_of_another_kind_is_named(tmp_path):
    given = bundle({"encoder": {"kind": "recurrent", "embedding_size": 8, "hidden_size": 8}, "decoder": {"kind": "recurrent"}})
    recurrent = save(given, tmp_path / "model")
    with pytest.raises(UserError, match=r"model\.encoder\.kind=recurrent"):
        load(recurrent, engine="ctranslate2")
    assert "regard's own engine" in load(recurrent, engine="auto").written_by


def test_operators_write_what_a_rounded_model_stands_for(model, tmp_path):
    from regard.models.directory import store_rounded

    store_rounded(model, tmp_path / "int8", "int8", "")
    rounded = load(tmp_path / "int8", engine="torch")
    assert rounded.engine is None
    assert rounded.generate(LINES, beam=1) == load(tmp_path / "int8", precision="float32").generate(LINES, beam=1)


def test_what_is_stored_rounded_is_laid_out_once(model, tmp_path, monkeypatch):
    from regard.decoding import searching
    from regard.models.directory import store_rounded

    store_rounded(model, tmp_path / "int8", "int8", "")
    made = []
    monkeypatch.setattr(
        searching, "engine_for", lambda *given, make=searching.engine_for: made.append(given[1]) or make(*given)
    )
    for given in ({"engine": "native"}, {"precision": "int8"}, {"engine": "auto"}):
        load(tmp_path / "int8", **given)
    assert made == ["int8"] * 3
    load(tmp_path / "int8", precision="float32")
    assert made[3:] == ["int8", "float32"]


def test_the_sources_are_what_their_tests_say():
    assert len({len(ids) for ids in TOKENIZER.encode(LINES)}) > 5
