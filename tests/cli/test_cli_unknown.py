"""`regard generate --replace-unknown`, with a dictionary that `regard align` has learned, from raw files."""

import pytest
from calling import refused, regard


@pytest.fixture(scope="module")
def half(corpus, tmp_path_factory):
    """A run that knows six of the ten words on either side."""
    folder = tmp_path_factory.mktemp("runs") / "half"
    words = ["data.tokenizer.size=10", "training.updates=300", "training.validate_every=300"]
    assert regard("train", corpus / "capitals.yaml", "--run", folder, "--quiet", *words) == (0, "", "")
    return folder


def outputs(run, corpus, *words):
    return regard("generate", run, *words, stdin=(corpus / "short.source").read_bytes()).out.splitlines()


def right(lines, target):
    """The share of words that stand where they should."""
    pairs = [pair for one, other in zip(lines, target, strict=True) for pair in zip(one.split(), other.split(), strict=False)]
    return sum(word == wanted for word, wanted in pairs) / len(pairs)


def test_unknown_words_become_what_the_dictionary_has_for_the_word_looked_at(half, corpus, tmp_path):
    target = (corpus / "short.target").read_text().splitlines()
    plain, replaced = outputs(half, corpus), outputs(half, corpus, "--replace-unknown")
    assert sum("⁇" in line for line in plain) > 20
    assert not any("⁇" in line for line in replaced)
    known = right(plain, target)
    assert right(map(str.upper, replaced), target) > known + 0.1  # source words, as they stand
    files = ["--source", corpus / "train.source", "--target", corpus / "train.target"]
    assert regard("align", half, *files, "--dictionary", tmp_path / "words.tsv").code == 0
    learned = dict(line.split("\t")[:2] for line in (tmp_path / "words.tsv").read_text().splitlines())
    assert sum(source.upper() == word for source, word in learned.items()) >= 9
    found = outputs(half, corpus, "--replace-unknown", "--dictionary", tmp_path / "words.tsv")
    assert right(found, target) > known + 0.1


def test_what_does_not_go_together_is_refused(half, blind, tmp_path):
    (tmp_path / "bad.tsv").write_text("der\tthe\nHund\n")
    assert "add --replace-unknown" in refused("generate", half, "--dictionary", tmp_path / "bad.tsv")
    assert "bad.tsv:2: a line has" in refused("generate", half, "--replace-unknown", "--dictionary", tmp_path / "bad.tsv")
    assert "no attention" in regard("generate", blind, "--replace-unknown", stdin=b"amicus\n").err
