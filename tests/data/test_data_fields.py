"""Columns that are no text: what each kind of field reads, refuses and keeps, and how its columns stand in a batch."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data.batching import FORMS, Batch, Column, collate, column_of, pad_to_multiple
from regard.data.fields import (
    FIELDS,
    Image,
    Label,
    Shape,
    Tags,
    Text,
    Vectors,
    configure_fields,
    fit_fields,
    load_field,
    outlines,
    tokenizer_of,
)  # fmt: skip
from regard.data.readers import BadRows
from regard.data.store import Store, prepare
from regard.data.tokenizers import END, train_tokenizer
from regard.data.writer import Writer
from regard.errors import DamagedError, DataError, RecipeError, UserError
from regard.models.device import on_device
from regard.recipe import Data, Pairs
from regard.recipe import Tokenizer as Section

WORDS = train_tokenizer(Section(kind="word"), ["the cat sat on a mat", "dogs bark"])
TEXTS = ["the cat sat", "dogs bark", "a mat"]
COLUMNS = {
    "source": "text", "tags": "tags", "label": "label", "sound": "vectors", "picture": "image", "words": "spelled",
}  # fmt: skip


def pixels(number: int) -> np.ndarray:
    return np.arange(2 * 4 * 3, dtype=np.uint8).reshape(2, 4, 3) + number


def vectors(number: int) -> np.ndarray:
    return np.arange((number + 1) * 3, dtype=np.float32).reshape(-1, 3) - number


@pytest.fixture
def files(tmp_path: Path) -> Pairs:
    """Three rows of everything; names of files are relative to the file that names them."""
    (tmp_path / "in").mkdir()
    for row in range(3):
        np.save(tmp_path / "in" / f"{row}.npy", vectors(row))
        np.save(tmp_path / "in" / f"{row}-picture.npy", pixels(row))
    lines = {
        "source": TEXTS,
        "tags": ["D N V", "N V", "D N"],
        "label": ["calm", "loud", "calm"],
        "sound": [f"{row}.npy" for row in range(3)],
        "picture": [f"{row}-picture.npy" for row in range(3)],
        "words": TEXTS,
    }
    for name, values in lines.items():
        (tmp_path / "in" / name).write_text("".join(f"{value}\n" for value in values))
    return pairs(tmp_path / "in")


def pairs(folder: Path) -> Pairs:
    return Pairs(source=folder / "source", columns={name: str(folder / name) for name in COLUMNS if name != "source"})


def data_of(files: Pairs, **options: object) -> Data:
    return Data.model_validate({"train": files, "tokenizer": {"kind": "word"}, **options})


def fitted(files: Pairs):
    data = data_of(files)
    return fit_fields(data, configure_fields(data, COLUMNS))


def made(files: Pairs, fields, policy: str = "stop") -> Store:
    folder = files.files[0].parent.parent / "store"
    return prepare(folder, files, fields, max_length=50, bad_rows=BadRows(policy, folder.with_name("report")))


def test_every_kind_is_fitted_in_one_pass_and_comes_back(files, tmp_path):
    fields = fitted(files)
    assert [field.kind for field in fields.values()] == list(COLUMNS.values())
    assert set(COLUMNS.values()) == FIELDS.keys()
    assert fields["label"].names == ["calm", "loud"]  # the most frequent first
    assert fields["tags"].names == ["N", "D", "V"]
    assert {name: field.shape.sizes for name, field in fields.items()} == {
        "source": (11,), "tags": (3,), "label": (2,), "sound": (3,), "picture": (2, 4, 3),
        "words": (11, 17, 20),
    }  # fmt: skip
    for name, field in fields.items():
        field.save(tmp_path / "fields" / name)
        again = load_field(tmp_path / "fields" / name)
        assert (type(again), again.shape, again.digest) == (type(field), field.shape, field.digest)
    assert fields["sound"].shape.told == "vectors of 3"


def test_values_become_arrays_and_names_come_back(files):
    fields, folder = fitted(files), files.files[0].parent
    rows, problems = fields["label"].encode(["loud", " calm "])
    assert (rows, problems) == ([[2], [1]], {})
    assert fields["label"].decode(rows[0]) == "loud"
    rows, problems = fields["tags"].encode(["D  N V"])
    assert (rows, problems, fields["tags"].decode(rows[0])) == ([[2, 1, 3]], {}, "D N V")
    located = fields["sound"].located(["2.npy"], folder)
    (found,), problems = fields["sound"].encode(located)
    assert problems == {}
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, vectors(2))
    (found,), problems = fields["picture"].encode([str(folder / "1-picture.npy")])
    assert problems == {}
    np.testing.assert_array_equal(found, pixels(1)[None])


def test_what_is_wrong_is_told_by_row(files):
    fields = fitted(files)
    assert fields["label"].encode(["calm", "laud"])[1] == {1: "the label 'laud' is not one of training's; did you mean 'loud'?"}
    assert fields["tags"].encode(["D N", "D X V"])[1].keys() == {1}
    assert "the tag 'X' is not one of training's" in fields["tags"].encode(["D N", "D X V"])[1][1]


ARRAYS = {
    "flat": (np.zeros(3, np.float32), "two dimensions"),
    "empty": (np.zeros((0, 3), np.float32), "two dimensions"),
    "words": (np.array([["a", "b", "c"]]), "two dimensions"),
    "complex": (np.zeros((1, 3), np.complex64), "two dimensions"),
    "wide": (np.zeros((2, 4), np.float32), "vectors of 4 elements, and training has 3"),
    "infinite": (np.full((1, 3), np.inf), "not all values are finite"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_odd_vectors_are_refused_by_row(name, tmp_path):
    array, told = ARRAYS[name]
    np.save(tmp_path / "good.npy", vectors(0))
    np.save(tmp_path / "odd.npy", array)
    rows, problems = Vectors(3).encode([str(tmp_path / "good.npy"), str(tmp_path / "odd.npy")])
    assert (len(rows), list(problems)) == (2, [1])
    assert problems[1].startswith(f"{tmp_path / 'odd.npy'}: ")
    assert told in problems[1]


def test_what_is_no_array_is_refused_and_never_executed(tmp_path):
    np.save(tmp_path / "pickled.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.savez(tmp_path / "several.npz", a=np.zeros(3))
    (tmp_path / "text.npy").write_text("1 2 3")
    (tmp_path / "nothing.npy").write_bytes(b"")
    names = ["missing.npy", "pickled.npy", "several.npz", "text.npy", "nothing.npy"]
    problems = Vectors(3).encode([str(tmp_path / name) for name in names])[1]
    told = ["no such file", "not an array", "several arrays", "not an array", "not an array"]
    assert [what in problems[row] for row, what in enumerate(told)] == [True] * 5, problems


def test_images_have_one_size(tmp_path):
    field = Image(2, 4, 3)
    odd = {"four": np.zeros((2, 4, 4), np.uint8), "high": np.zeros((4, 4, 3), np.uint8), "float": np.zeros((2, 4, 3))}
    for name, array in odd.items():
        np.save(tmp_path / f"{name}.npy", array)
    problems = field.encode([str(tmp_path / f"{name}.npy") for name in odd])[1]
    assert problems[0].endswith("an image of [2, 4, 4], and training has [2, 4, 3] (height, width, channels)")
    assert "an image of [4, 4, 3]" in problems[1]
    assert "bytes (uint8) of height, width and channels are needed, not float64" in problems[2]


def test_pictures_are_scaled_where_the_recipe_says_so(tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    pillow.fromarray(np.full((6, 8, 3), 7, np.uint8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no picture")
    names = [str(tmp_path / name) for name in ("a.png", "b.png", "c.png")]
    (found, *_), problems = Image(3, 2, 1, fit="scale").encode(names)
    assert found.shape == (1, 3, 2, 1)
    assert set(found.flatten().tolist()) == {7}
    assert "not an image that can be read" in problems[1]
    assert "no such file" in problems[2]
    assert "an image of [6, 8, 3]" in Image(3, 2, 3).encode(names)[1][0]


HOSTILE = [
    ({"kind": "label", "names": []}, "not such as a value is cut into"),
    ({"kind": "label", "names": "ab"}, "not such as a value is cut into"),
    ({"kind": "label", "names": ["a", 1]}, "not such as a value is cut into"),
    ({"kind": "label", "names": [" a"]}, "not such as a value is cut into"),
    ({"kind": "tags", "names": ["a b"]}, "not such as a value is cut into"),
    ({"kind": "label", "names": ["a", "a"]}, "a name twice"),
    ({"kind": "label"}, "no key or kind 'names'"),
    ({"kind": "label", "names": ["a"], "more": 1}, "more or other things"),
    ({"kind": "label", "names": ["a"], "format": 2}, "format 2 is not 1"),
    ({"kind": "other"}, "no key or kind 'other'"),
    ({"kind": []}, "no field can be read"),
    ({"kind": "text"}, "a text's field is its tokenizer"),
    ({"kind": "vectors", "elements": 0}, "0 is not a size"),
    ({"kind": "vectors", "elements": True}, "True is not a size"),
    ({"kind": "vectors", "elements": 1 << 40}, "is not a size"),
    ({"kind": "image", "height": 2, "width": "4", "channels": 3, "scaled": False}, "'4' is not a size"),
    ({"kind": "image", "height": 2, "width": 4, "channels": 3, "scaled": "no"}, "more or other things"),
    ({"kind": "image", "height": 2, "width": 4, "channels": 3, "scaled": False, "fit": "mine"}, "no way of fitting images"),
]


@pytest.mark.parametrize(("facts", "told"), HOSTILE)
def test_a_field_of_other_values_is_refused(tmp_path, facts, told):
    (tmp_path / "field.json").write_text(json.dumps({"format": 1, **facts}))
    with pytest.raises(DamagedError) as error:
        load_field(tmp_path)
    assert told in str(error.value)


def test_a_recipe_names_columns_and_kinds_that_there_are(files):
    with pytest.raises(RecipeError, match=r"data\.fields\.sorce: the model has no column 'sorce'.*source"):
        configure_fields(data_of(files, fields={"sorce": {"kind": "text"}}), COLUMNS)
    with pytest.raises(RecipeError, match="vectors"):
        configure_fields(data_of(files, fields={"source": {"kind": "vector"}}), COLUMNS)
    with pytest.raises(RecipeError, match=r"data\.fields\.picture\.hight"):
        configure_fields(data_of(files, fields={"picture": {"hight": 3}}), COLUMNS)
    configs = configure_fields(data_of(files, fields={"label": {"kind": "text", "tokenizer": {"kind": "byte"}}}), COLUMNS)
    assert [configs[name].kind for name in COLUMNS] == ["text", "tags", "text", "vectors", "image", "spelled"]
    assert (configs["source"].tokenizer.kind, configs["label"].tokenizer.kind) == ("word", "byte")
    assert outlines(configs)[-2:] == [Shape("image", (0, 0, 1)), Shape("spelled", (8, 8, 20))]


def test_texts_share_a_vocabulary_where_they_share_a_tokenizer(files):
    columns = {"source": "text", "label": "text", "tags": "text"}
    data = data_of(files, fields={"tags": {"tokenizer": {"kind": "word"}}}).model_copy(
        update={"tokenizer": Section(kind="word", shared=True)}
    )
    fields = fit_fields(data, configure_fields(data, columns))
    assert fields["source"].digest == fields["label"].digest != fields["tags"].digest
    assert tokenizer_of(fields["source"]).encode(["loud mat"]) != [[1, 1]]
    with pytest.raises(UserError, match="kind `text` is needed here, not `label`"):
        tokenizer_of(Label(["a"]))


def test_a_store_and_its_batches_hold_every_form(files):
    fields = fitted(files)
    store = made(files, fields)
    assert list(store.columns) == list(COLUMNS)  # in the model's order, opened or built
    assert {name: side.values.dtype.str for name, side in store.columns.items()} == {
        "source": "<u2", "tags": "<u2", "label": "<u2", "sound": "<f4", "picture": "|u1", "words": "<u2",
    }  # fmt: skip
    batch = collate(store, np.array([2, 0]))
    source, tags, label, sound, picture, words = (batch[name] for name in COLUMNS)
    assert source.lengths.tolist() == [3, 4]
    assert source.values[:, 2:].tolist() == [[END, 0], [source.values[1, 2], END]]
    assert (tags.values.tolist(), tags.lengths.tolist(), tags.values.dtype) == ([[2, 1, 0], [2, 1, 3]], [2, 3], np.int64)
    assert (label.values.tolist(), label.lengths, label.times) == ([1, 1], None, 0)
    assert (sound.values.shape, sound.values.dtype, sound.lengths.tolist()) == ((2, 3, 3), np.float32, [3, 1])
    np.testing.assert_array_equal(sound.values[0], vectors(2))
    assert not sound.values[1, 1:].any()
    assert (picture.values.shape, picture.values.dtype, picture.lengths, picture.times) == ((2, 2, 4, 3), np.uint8, None, 0)
    np.testing.assert_array_equal(picture.values[1], pixels(0))
    assert (words.values.shape, words.values.dtype, words.lengths.tolist()) == ((2, 3, 21), np.int64, [2, 3])
    np.testing.assert_array_equal(words.values[1], fields["words"].encode(TEXTS)[0][0])
    assert store.positions("source", np.array([2, 0])) == 7
    assert store.positions("tags", np.array([2, 0])) == 5
    there = on_device(batch, torch.device("cpu"))
    assert all(there[name].values.equal(torch.from_numpy(np.ascontiguousarray(batch[name].values))) for name in COLUMNS)


def test_rows_in_no_store_are_collated_alike(files):
    fields = fitted(files)
    store, folder = made(files, fields), files.files[0].parent
    batch = collate(store, np.arange(3))
    for name, field in fields.items():
        values = field.located((folder / name).read_text().split("\n")[:3], folder)
        rows, problems = field.encode(values)
        assert not problems
        for ours, theirs in zip(column_of(field, rows), batch[name], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_shapes_are_rounded_up_in_every_form(files):
    batch = collate(made(files, fitted(files)), np.array([2, 0]))
    batch = Batch({**batch.columns, "links": Column(np.ones((2, 3, 4), np.float32), times=2)}, batch.rows)
    # `offered`: tests/training/test_replay.py; `boxed` columns are shares of regions, as `linked` ones are of words
    assert {"marked", "plain", "single", "linked", "boxed", "offered"} == FORMS.keys()
    full = pad_to_multiple(batch, 4, 5, "label")
    assert {name: column.values.shape for name, column in full.columns.items()} == {
        "source": (4, 5), "tags": (4, 5), "label": (4,), "sound": (4, 5, 3), "picture": (4, 2, 4, 3), "links": (4, 5, 5),
        "words": (4, 5, 21),
    }  # fmt: skip
    for name, before in batch.columns.items():
        after = full[name]
        np.testing.assert_array_equal(after.values[tuple(map(slice, before.values.shape))], before.values)
        assert (after.values.dtype, after.times, after.size) == (before.values.dtype, before.times, before.size)
        assert (after.lengths is None) == (before.lengths is None)
    assert full["source"].lengths.tolist() == [3, 4, 1, 1]
    assert full["source"].values[2:].tolist() == [[END, 0, 0, 0, 0]] * 2
    assert full["sound"].lengths.tolist() == [3, 1, 1, 1]
    assert not full["label"].values[2:].any()  # nothing to write
    assert not full["sound"].values[2:].any()
    assert not full["picture"].values[2:].any()
    assert not full["links"].values[2:].any()
    assert not pad_to_multiple(batch, 4, 5, "tags")["tags"].lengths[2:].any()


def spoil(files: Pairs, name: str, row: int, value: str) -> None:
    path = files.file_of(name)
    lines = path.read_text().split("\n")
    lines[row] = value
    path.write_text("\n".join(lines))


@pytest.mark.parametrize(("name", "value", "told"), [
    ("label", "lout", "label:2: the label 'lout' is not one of training's"),
    ("tags", "N", "tags:2: 1 tags for 2 tokens of the source (a tokenizer that cuts at spaces"),
    ("tags", "N Q", "tags:2: the tag 'Q' is not one of training's"),
    ("sound", "none.npy", "none.npy: no such file"),
    ("picture", "1.npy", "bytes (uint8) of height"),
])  # fmt: skip
def test_bad_values_are_bad_rows(files, tmp_path, name, value, told):
    fields = fitted(files)
    spoil(files, name, 1, value)
    with pytest.raises(DataError) as error:
        made(files, fields)
    assert told in str(error.value)
    assert not (tmp_path / "store").exists()
    store = made(files, fields, "skip")
    assert [store.facts[key] for key in ("rows_in", "rows_used", "rows_reported")] == [3, 2, 1]
    assert store.lines.tolist() == [1, 3]
    assert store["label"].values.tolist() == [1, 1]
    np.testing.assert_array_equal(store["sound"][1], vectors(2))
    assert told in (tmp_path / "report").read_text()


def test_a_store_that_was_killed_half_way_is_built_anew(files, tmp_path):
    fields, child = fitted(files), os.fork()
    if child == 0:
        Writer.facts = lambda self: os._exit(9)
        made(files, fields)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert [path.name[:5] for path in tmp_path.iterdir() if path.name != "in"] == [".tmp-"]
    store = made(files, fields)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "store"]
    assert len(store) == 3
    np.testing.assert_array_equal(store["picture"][2], pixels(2)[None])


def test_a_store_of_other_fields_is_built_anew(files):
    fields = fitted(files)
    made(files, fields)
    fields["label"] = Label(["loud", "calm"])
    assert made(files, fields)["label"].values.tolist() == [2, 1, 2]


def test_one_column_may_be_all_there_is_to_learn_from(tmp_path):
    """Of a table, and with texts that have tags: the field knows its own kind."""
    (tmp_path / "t.tsv").write_text("a b\tX Y\nc\tX\n")
    files = Pairs(pairs=tmp_path / "t.tsv", columns={"source": 0, "tags": 1})
    data = data_of(files)
    fields = fit_fields(data, configure_fields(data, {"source": "text", "tags": "tags"}))
    assert isinstance(fields["source"], Text)
    assert isinstance(fields["tags"], Tags)
    store = prepare(tmp_path / "store", files, fields, max_length=9, bad_rows=BadRows("stop"))
    assert [np.asarray(store.lengths(name)).tolist() for name in ("source", "tags")] == [[2, 1]] * 2


def test_words_are_spelled_out(files, tmp_path):
    """A word's number, its characters, PAD; of a long one the first and the last half; a word that nobody knows is read."""
    fields = FIELDS["spelled"].fitter(FIELDS["spelled"].Config(length=5, tokenizer=Section(kind="word", lowercase=True)))
    fields.add(["Aa b  a", "\tb ccccddd a"], "source")
    made = fields.finish()
    assert made.words.symbols == ["a", "b", "aa", "ccccddd"]
    assert made.characters.symbols == ["c", "a", "d", "b", "A"]
    (row, nothing), problems = made.encode(["Aa  ccccddd x", " "])
    assert problems == {}
    assert nothing.shape == (0, 6)
    assert row.tolist() == [[6, 8, 5, 0, 0, 0], [7, 4, 4, 4, 6, 6], [1, 1, 0, 0, 0, 0]]
    assert made.shape == ("spelled", (8, 9, 5))
    made.save(tmp_path / "words")
    again = load_field(tmp_path / "words")
    assert (again.digest, again.shape) == (made.digest, made.shape)
    assert again.encode(["Aa ccccddd x"])[0][0].tolist() == row.tolist()
    column = column_of(made, [row, nothing])
    assert column.values.dtype == np.int64
    assert column.values.shape == (2, 3, 6)
    assert column.lengths.tolist() == [3, 0]
    with pytest.raises(UserError, match=r"set data\.tokenizer\.kind=word"):
        FIELDS["spelled"].fitter(FIELDS["spelled"].Config(tokenizer=Section(kind="bpe")))


@pytest.mark.parametrize(
    ("key", "value"), [("length", 0), ("words", {"symbols": ["a b"], "lowercase": False}), ("characters", {})]
)
def test_a_damaged_spelling_is_refused(key, value, files, tmp_path):
    fitted(files)["words"].save(tmp_path / "words")
    path = tmp_path / "words" / "field.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(DamagedError, match=r"field\.json"):
        load_field(tmp_path / "words")
