"""`regard shortlist`, and what `generate` says of its engine."""

import re

import pytest
from calling import refused, regard

from regard.data.lexicon import learn
from regard.data.store import Store


def test_a_shortlist_is_learnt_judged_and_used(own, corpus):
    assert "make one with `regard shortlist" in refused("generate", own, "--shortlist")
    code, out, _ = regard("shortlist", own, "--likely", "30", "--common", "60")
    assert code == 0
    told = {name: line for line in out.splitlines() for name in ("with the shortlist", "outputs are the same") if name in line}
    assert set(told) == {"with the shortlist", "outputs are the same"}
    assert (own / "model-shortlist" / "manifest.json").is_file()
    lines = (corpus / "short.source").read_bytes()
    plain, short = (regard("generate", own, "--precision", "float32", *more, stdin=lines) for more in ([], ["--shortlist"]))
    assert (plain.code, short.code, len(short.lines)) == (0, 0, len(plain.lines))
    found = re.search(r"(\d+) of (\d+) words for a sentence", out.replace(",", ""))
    assert 0 < int(found[1]) <= int(found[2])
    store = Store.open(own / "data")
    assert len(learn((store["source"][row], store["target"][row]) for row in range(len(store))).source) > 0


def test_one_translation_is_enough_where_each_letter_has_one(own, corpus):
    """The capital of each letter: nothing is lost, and there are as few words as letters, and those that always may come."""
    code, out, _ = regard("shortlist", own, "--likely", "1", "--common", "0")
    assert code == 0
    shares = [float(share) for share in re.findall(r"\(([\d.]+) %\)", out)]
    assert shares
    assert min(shares) == 100
    counts = [int(count) for count in re.findall(r"(\d+) of \d+ words", out)]
    assert max(counts) <= max(len(set(line)) for line in (corpus / "long.source").read_text().splitlines()) + 3


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_what_writes_is_said(engine, own):
    expected, found = regard("generate", own, stdin=b"amicus\n"), regard("generate", own, "--engine", engine, stdin=b"amicus\n")
    assert found.out == expected.out
    assert found.err.startswith("note: outputs are written by")


def test_engines_that_cannot_are_refused_with_the_reason(own):
    assert "model.encoder.kind=" in refused("generate", own, "--engine", "ctranslate2") or "not installed" in refused(
        "generate", own, "--engine", "ctranslate2"
    )
    assert "for one run" in refused("generate", own, "--with", own, "--engine", "native")
    assert "did you mean" in refused("generate", own, "--engine", "natve")


def test_a_model_directory_alone_has_nothing_to_learn_from(own, tmp_path):
    (own / "model").rename(tmp_path / "model")
    assert "learnt from a run" in refused("shortlist", tmp_path / "model")
