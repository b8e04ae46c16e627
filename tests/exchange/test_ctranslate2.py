"""CTranslate2 writes what we write with the same weights; what it cannot compute is refused with its key."""

import json

import pytest
import torch
from calling import regard
from exchanged import TOKENIZER, bundle, save, sources
from kinds import KINDS
from tiny_transformer import section

from regard.decoding.generator import TrainedGenerator
from regard.errors import UserError
from regard.exchange import export
from regard.exchange.ctranslate2 import refusal
from regard.exchange.vocabulary import names_of
from regard.models import configure

ctranslate2 = pytest.importorskip("ctranslate2")
CLOSE = 5e-4  # its exp is a polynomial chosen by the processor: with AVX-512, sums of eight logits were 1.5e-4 away
OUR_LONGEST = 8  # tokens of an output: the learned positions of KINDS know nine places
BIASED = {"heads": 2, "bias": True}
MORE = {
    "pre-norm-swiglu-rotary": section(norm="rms", norm_place="pre", feedforward="swiglu", positions="rotary"),
    "one-norm-a-side": {**section(), "decoder": section(norm="rms", norm_place="pre")["decoder"]},
    "shared": {**section(), "share_embeddings": True},
    "output-bias": section({"output_bias": True, "tied": False, "cross_attention": BIASED}),
    "as-marian": section(positions="sinusoid_halves", feedforward="swish"),
    "other-depth": {**section(), "decoder": {**section(layers=3, feedforward_size=10)["decoder"]}},
}
CASES = {**{name: kind for name, kind in KINDS.items() if name.startswith("transformer-")}, **MORE}
RUNS = {name: case for name, case in CASES.items() if refusal(configure(case)) is None}


def theirs(directory, lines, **options):
    names = json.loads((directory / "shared_vocabulary.json").read_text())
    rows = [[names[token] for token in ids] for ids in TOKENIZER.encode(lines)]
    found = ctranslate2.Translator(str(directory), intra_threads=1).translate_batch(
        rows, min_decoding_length=0, max_input_length=0, max_decoding_length=OUR_LONGEST, return_scores=True, **options
    )
    return [
        [([names.index(name) for name in tokens], score) for tokens, score in zip(one.hypotheses, one.scores, strict=True)]
        for one in found
    ]


@pytest.mark.parametrize("name", RUNS)
def test_ctranslate2_writes_the_same(name, tmp_path):
    """Greedy, and the best of a beam of five with and without normalisation; scores say that a length counts the end mark.
    It stops a beam earlier than we do where lengths are normalised, and may then miss what we find."""
    given, lines = bundle(RUNS[name], max_length=OUR_LONGEST), sources(30, 8)
    export(save(given, tmp_path / "model"), "ctranslate2", tmp_path / "out")
    ours = TrainedGenerator(given)
    for beam, penalty in ((1, 0.0), (1, 1.0), (5, 0.0), (5, 1.0)):
        found = theirs(tmp_path / "out", lines, beam_size=beam, length_penalty=penalty)
        wanted = ours.search(lines, beam=beam, length_penalty=penalty)
        both = [(one[0], other[0]) for one, other in zip(wanted, found, strict=True)]
        same = [(one.score, other[1]) for one, other in both if one.tokens == other[0]]
        assert len(same) == len(lines) or (beam == 5 and penalty and same)
        assert all(one.score > other[1] - CLOSE for one, other in both)  # where they differ, we found better
        torch.testing.assert_close(*map(torch.tensor, zip(*same, strict=True)), rtol=1e-4, atol=CLOSE)


def test_the_cases_hold_both_kinds_of_answer():
    assert len(RUNS) >= 15
    assert len(CASES) - len(RUNS) >= 15


OTHER = {"heads": 1, "size": 4}
REFUSED = {
    "model.kind=decoder_alone": {"kind": "decoder_alone"},
    "model.encoder.kind=recurrent": {"encoder": {"kind": "recurrent"}},
    "model.encoder.norm=batch": section(norm="batch"),
    "model.encoder.positions=alibi": section(positions="alibi"),
    "model.encoder.positions_join=concatenated": section(positions_join="concatenated"),
    "model.encoder.experts": section(experts={"number": 3, "every": 1}),
    "model.encoder.attention.score=additive": section(attention={"heads": 2, "score": "additive"}),
    "model.encoder.attention.scope=blocks": section(attention={"heads": 2, "scope": "blocks"}),
    "model.encoder.attention.size=4": section(attention=OTHER),
    "model.decoder.cross_attention.selection=sparsemax": section({"cross_attention": {"heads": 2, "selection": "sparsemax"}}),
    "model.decoder.cross_attention.coverage=True": section({"cross_attention": {"heads": 2, "coverage": True}}),
    "model.decoder.cross_attention.heads=4": section({"cross_attention": {"heads": 4}}),
    "model.decoder.copy_words=added": section({"copy_words": "added"}),
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_it_cannot_compute_is_refused_with_its_key(key):
    told = refusal(configure(REFUSED[key]))
    assert told is not None
    assert f": {key}" in told


def test_every_choice_of_a_layer_that_it_lacks_is_refused():
    """Of the tables' entries in turn: a new one is refused until it is exported."""
    runs = {name.removeprefix("transformer-") for name in RUNS}
    assert {name for name in runs if name.startswith("score-")} == {"score-projected"}
    assert {name for name in runs if "scope-" in name} == {"own-scope-global", "cross-scope-global"}
    assert {name for name in runs if name.startswith("selection-")} == {"selection-soft"}


def test_by_the_command_line_in_int8(tmp_path):
    model = save(bundle(section(hidden_size=32, feedforward_size=64)), tmp_path / "model")
    done = regard("export", model, "--to", "ctranslate2", "--output", tmp_path / "out", "--quantization", "int8")
    assert done.code == 0, done.err
    assert ctranslate2.Translator(str(tmp_path / "out"), compute_type="default").compute_type.startswith("int8")
    again = regard("export", model, "--to", "ctranslate2", "--output", tmp_path / "out")
    assert again.code == 0  # what we wrote may be replaced
    (tmp_path / "out" / "mine.txt").write_text("mine")
    for words, told in (
        (("--to", "ctranslate2", "--output", tmp_path / "out"), "regard did not write this"),
        (("--to", "tensorflow", "--output", tmp_path / "new"), "unknown export format 'tensorflow'"),
        (("--to", "ctranslate2", "--output", tmp_path / "new", "--quantization", "int3"), "int3 is unknown"),
    ):
        found = regard("export", model, *words)
        assert found.code == 2
        assert told in found.err
        assert not (tmp_path / "new").exists()


def test_without_the_library_the_error_names_the_extra(tmp_path, monkeypatch):
    model = save(bundle(section()), tmp_path / "model")
    monkeypatch.setitem(__import__("sys").modules, "ctranslate2", None)
    with pytest.raises(UserError, match=r"pip install 'regard\[export\]'"):
        export(model, "ctranslate2", tmp_path / "out")


def test_names_are_one_for_each_token():
    from regard.data.fields import Text
    from regard.data.tokenizers import WordTokenizer

    names = names_of(Text(WordTokenizer(["<s>", "</s>", "▁a", "a", "<unk>"])))
    assert len(set(names)) == len(names) == 9
    assert names[:4] == ["<pad>", "<unk>", "<s>", "</s>"]
