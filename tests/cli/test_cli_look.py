"""`regard look`: what it says of words that the model does not know, of long pictures, and of names of files."""

import re

import pytest
from calling import refused, regard


@pytest.fixture(scope="module")
def some(corpus, tmp_path_factory):
    """A run that knows six of the ten words on either side."""
    folder = tmp_path_factory.mktemp("runs") / "some"
    words = ["data.tokenizer.size=10", "training.updates=2", "training.validate_every=2"]
    assert regard("train", corpus / "capitals.yaml", "--run", folder, "--quiet", *words).code == 0
    return folder


def test_words_that_the_model_does_not_know_are_named(some, trained):
    texts = ["amicus xyzzy", "bellum xyzzy quux"]
    found = regard("look", trained, *texts)
    assert found.code == 0
    assert found.err == "note: the model reads xyzzy, quux as the unknown word: no vocabulary of it has them\n"
    many = regard("look", some, " ".join(f"w{number}" for number in range(20))).err
    assert "w0, w1, w2, w3, w4, w5, w6, w7 and 12 more as the unknown word" in many
    assert regard("look", trained, "amicus bellum").err == ""


def test_a_text_of_thousands_of_lines_says_what_shows_it_better(trained):
    words = " ".join(["amicus"] * 300)
    found = regard("look", trained, words, "--target", words)
    (told,) = re.findall(r"^note: these are ([\d,]+) lines; --html FILE", found.err, re.MULTILINE)
    assert int(told.replace(",", "")) == len(found.out.splitlines())


def test_a_name_that_ends_as_another_kind_of_picture_is_refused(trained, tmp_path):
    told = refused("look", trained, "amicus", "--png", tmp_path / "a.gif")
    assert "a.gif: what is written is PNG: let the name end in .png" in told
    assert not list(tmp_path.iterdir())
    for name in ("a", "a.PNG"):  # no ending says nothing wrong
        assert regard("look", trained, "amicus", "--png", tmp_path / name).code == 0
