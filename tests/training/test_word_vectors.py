"""Word vectors of others: both formats, faults by their lines, coverage, frozen or not, killed or not."""

import gzip
import struct

import pytest
import tasks
import torch

import regard
from regard import run
from regard.data.word_vectors import read_word_vectors
from regard.errors import DataError, UserError
from regard.recipe import Recipe, override, parse
from regard.training import word_vectors

GLOVE = ["a 1 2 3", "b 4 5 6", ". . . 7 8 9", "a 0 0 0", "c -1 0.5 1e-2"]


def write(path, lines):
    text = "".join(f"{line}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["v.txt", "v.txt.gz"])
@pytest.mark.parametrize("header", [[], ["5 3"]], ids=["GloVe", "word2vec"])
def test_both_formats_are_read(header, name, tmp_path):
    """Of a word that stands twice the first counts; a word may have spaces; what nobody asked for is not kept."""
    lines = [f"{line} " if header else line for line in GLOVE]  # word2vec writes a space at the end
    found = read_word_vectors(write(tmp_path / name, [*header, *lines]), {"a", ". . .", "c", "x"})
    assert {word: vector.tolist() for word, vector in found.vectors.items()} == {
        "a": [1, 2, 3], ". . .": [7, 8, 9], "c": [-1, 0.5, pytest.approx(0.01)],
    }  # fmt: skip
    assert (found.size, found.lines, found.unread) == (3, 5, 0)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["a 1 2 3", "b 1 2"], r"v\.txt:2: 2 numbers after the word, where vectors have 3"),
        (["a 1 2 3", "b 1 x 3"], r"v\.txt:2: not a number: 'x'"),
        (["a 1 2 3", "b 1 nan 3"], r"v\.txt:2: a vector with a number that is not finite"),
        (["2 3", "a 1 2 3"], r"v\.txt: its first line says that there are 2 vectors, and there are 1: copy it again"),
        (["4 3"], r"v\.txt: its first line says that there are 4"),
        (["4 2", "a 1 2 3"], r"v\.txt:2: 3 numbers after the word, where vectors have 2, by its first line"),
        (["4 0", "a 1 2 3"], r"v\.txt:2: no numbers after the word; spaces or tabs separate them, by its first line"),
        (["word"], r"v\.txt:1: no numbers after the word; spaces or tabs separate them"),
        (["a,1,2"], r"v\.txt:1: no numbers after the word; spaces or tabs separate them"),
        (["a 1 2", "b"], r"v\.txt:2: 0 numbers after the word, where vectors have 2"),
        ([], r"v\.txt: no vectors"),
    ],
)
def test_faults_are_told_by_their_lines(lines, told, tmp_path):
    with pytest.raises(DataError, match=told):
        read_word_vectors(write(tmp_path / "v.txt", lines), {"a", "b"})


def test_tabs_and_more_spaces_separate_too_and_empty_lines_are_nothing(tmp_path):
    lines = ["2 2", "a\t1\t2", "", " b  3 4 ", ""]
    found = read_word_vectors(write(tmp_path / "v.txt", lines), {"a", "b"})
    assert {word: vector.tolist() for word, vector in found.vectors.items()} == {"a": [1, 2], "b": [3, 4]}
    assert found.lines == 2


@pytest.mark.parametrize("values", [[1.5, -2], [0, 0]])
def test_word2vecs_bytes_are_known(values, tmp_path):
    """Some are no UTF-8, and some have zeros."""
    numbers = struct.pack("<2f", *values)
    (tmp_path / "v.bin").write_bytes(b"2 2\n" + b"".join(word + b" " + numbers + b"\n" for word in (b"a", b"b")))
    with pytest.raises(DataError, match=r"v\.bin: numbers as bytes, as word2vec writes them with -binary 1; save it as text"):
        read_word_vectors(tmp_path / "v.bin", {"a"})


def test_a_word_that_is_no_utf8_is_passed_over(tmp_path):
    (tmp_path / "v.txt").write_bytes(b"a 1 2\n\xff 1 2\nb 3 4\n")
    found = read_word_vectors(tmp_path / "v.txt", {"a", "b"})
    assert (sorted(found.vectors), found.unread) == (["a", "b"], 1)


def recipe(folder, task="tagger", vectors=GLOVE, column="source", changes=(), **training):
    files = tasks.write(folder, task)
    path = write(folder / "v.txt", vectors)
    values = tasks.recipe(task, files, updates=3, validate_every=3, save_every=1, log_every=1, **training)
    size = f"model.{'encoder' if column == 'source' else 'decoder'}.embedding_size=3"
    return parse(Recipe, override(values, [size, f"training.vectors.{column}={path}", *changes]))


def table(model, part="encoder"):
    embed = getattr(model, part).embed
    return getattr(embed, "words", embed).weight


@pytest.mark.parametrize(
    ("task", "column", "part"), [("tagger", "source", "encoder"), ("recurrent_texts", "target", "decoder")]
)
def test_words_begin_with_their_vectors(task, column, part, tmp_path, monkeypatch):
    """Words as written or in small letters; the others vary as much; what they cover is said."""
    said, filled = [], {}
    original = word_vectors.fill

    def fill(weights, words, path, name):
        said.append(original(weights, words, path, name))
        filled.update(zip(words, weights.weight[4:].tolist(), strict=True))
        return said[-1]

    monkeypatch.setattr(word_vectors, "fill", fill)
    run.train(recipe(tmp_path, task, ["a 1 2 3", "c 4 5 6", "x 0 0 0"], column), tmp_path / "run", talk=False)
    assert (filled["a"], filled["c"]) == ([1, 2, 3], [4, 5, 6])
    assert 0 < max(map(abs, filled["b"])) < 20
    assert said == [
        f"word vectors of the {column}: 2 of 4 words (50.0%) have one in {tmp_path / 'v.txt'}, 0 of them in small letters"
    ]
    learned = table(regard.load(tmp_path / "run").model, part)
    assert not torch.equal(learned[4:], torch.tensor([filled[word] for word in filled]))


@pytest.mark.parametrize("spelled", [False, True])
def test_frozen_vectors_stay_and_a_resumed_run_keeps_them(spelled, tmp_path):
    characters = ["data.fields.source.kind=spelled", "model.encoder.embedding_size=7",
                  "model.encoder.input={kind: characters, size: 4, character_size: 3}"]  # fmt: skip
    made = recipe(tmp_path, changes=["training.freeze_vectors=true", *(characters if spelled else [])])
    run.train(made, tmp_path / "run", talk=False)
    before = table(regard.load(tmp_path / "run").model)
    (tmp_path / "v.txt").unlink()
    more = made.model_copy(update={"training": made.training.model_copy(update={"updates": 5})})
    run.train(more, tmp_path / "run", resume=True, talk=False)
    model = regard.load(tmp_path / "run")
    field = model.fields["source"]
    words = (field.words if spelled else field.tokenizer).symbols
    rows = {word: table(model.model)[4 + words.index(word)].tolist() for word in ("a", "b", "c")}
    assert (rows["a"], rows["b"], rows["c"]) == ([1, 2, 3], [4, 5, 6], pytest.approx([-1, 0.5, 0.01]))
    assert torch.equal(table(model.model), before)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["model.encoder.embedding_size=8"], "vectors of 3 elements, where the model's words have 8: change .* by -5"),
        (["data.tokenizer.kind=byte", "data.fields.tags.kind=label"], "word vectors are for words"),
        (["training.vectors.target=x"], r"training\.vectors\.target: the model has no table of words"),
    ],
)
def test_what_cannot_begin_with_vectors_says_why(changes, told, tmp_path):
    with pytest.raises(UserError, match=told):
        run.train(recipe(tmp_path, changes=changes), tmp_path / "run", talk=False)


def test_vectors_of_other_words_are_refused(tmp_path):
    with pytest.raises(UserError, match="none of the 4 words of the source has a vector there"):
        run.train(recipe(tmp_path, vectors=["x 1 2 3"]), tmp_path / "run", talk=False)


def test_words_in_capitals_take_the_vectors_of_small_letters(tmp_path):
    made = torch.nn.Embedding(7, 3)
    told = word_vectors.fill(made, ["A", "b", "c"], write(tmp_path / "v.txt", ["a 1 2 3", "b 4 5 6"]), "source")
    assert made.weight[4:6].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert "2 of 3 words (66.7%) have one" in told
    assert "1 of them in small letters" in told
