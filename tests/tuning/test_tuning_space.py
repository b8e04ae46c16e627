"""Every entry of the space: what it does to a recipe, said by hand; and where it makes no sense."""

from copy import deepcopy

import pytest
from studies import recipe_of

from regard.choices import as_recipe
from regard.choices.model import recurrent, transformer
from regard.models import configure
from regard.overrides import flatten
from regard.preflight import check
from regard.recipe import Recipe, parse
from regard.tuning import space
from regard.tuning.space import SPACE, Point, changed, searched, touches

CHARACTERS = {f"data.fields.{name}": {"kind": "text", "tokenizer": {"kind": "character"}} for name in ("source", "target")}
SUBWORDS = {"data.tokenizer": {"kind": "bpe", "size": 1000, "shared": True}}


class Found:
    rows = 1000


def point_of(table, chosen, **known):
    """As the rules choose."""
    values = as_recipe(deepcopy(chosen), Found(), "bahdanau2015-small")
    values["data"]["train"] = {"pairs": str(table)}
    recipe = parse(Recipe, values)
    whole = recipe.model_copy(update={"model": configure(recipe.model).model_dump(mode="json")})
    return Point(whole.model_dump(mode="json"), **known)


@pytest.fixture(scope="module")
def points(table):
    gru, stack = recurrent("gru", 64, 128, 1, 0.3), transformer(128, 256, 2, 4, 0.1)
    copying = {"model.decoder.copy_words": "gated", "training.made_up_stems": 0.66}
    return {
        "letters": point_of(table, {**CHARACTERS, **gru}),
        "letters that are copied": point_of(table, {**CHARACTERS, **gru, **copying}, copied=0.6),
        "subwords": point_of(table, {**SUBWORDS, **stack, "model.share_embeddings": True}),
        "own subwords": point_of(
            table, {**gru, "data.fields.target": {"kind": "text", "tokenizer": {"kind": "unigram", "size": 600}}, **SUBWORDS}
        ),
        "of a paper": Point(recipe_of(point_of(table, {**SUBWORDS, **gru}).values).model_dump(mode="json"), named=True),
    }


@pytest.fixture(scope="module")
def spaces(points):
    return {name: searched(point) for name, point in points.items()}


# entry -> point, value, and what becomes of some keys
EXPECTED = {
    "family": ("letters", "transformer", {
        "model.encoder.kind": "transformer", "model.decoder.kind": "transformer", "model.encoder.hidden_size": 128,
        "model.encoder.dropout": 0.3, "model.encoder.layers": 2, "model.share_embeddings": False,
    }),
    "copying": ("letters that are copied", None, {"model.decoder.copy_words": None, "training.made_up_stems": 0.0}),
    "layers": ("subwords", -1, {"model.encoder.layers": 1, "model.decoder.layers": 1}),
    "size": ("letters", 1.5, {
        "model.encoder.embedding_size": 96, "model.decoder.embedding_size": 96, "model.encoder.hidden_size": 192,
        "model.decoder.hidden_size": 384, "model.decoder.attention.size": 192,
    }),
    "dropout": ("letters", 0.1, {"model.encoder.dropout": 0.1, "model.decoder.dropout": 0.1}),
    "label smoothing": ("letters", 0.2, {"training.label_smoothing": 0.2}),
    "learning rate": ("letters", 0.0005, {"training.learning_rate": 0.0005}),
    "batch": ("letters", 2.0, {"data.batch_tokens": 8192, "training.updates": 2000, "training.validate_every": 125}),
    "vocabulary": ("own subwords", 2.0, {"data.tokenizer.size": 2000, "data.fields.target.tokenizer.size": 1200}),
}  # fmt: skip


def test_every_entry_has_its_expectation():
    assert EXPECTED.keys() == SPACE.keys()


@pytest.mark.parametrize("name", SPACE)
def test_what_an_entry_does(name, points):
    place, value, expected = EXPECTED[name]
    before, after = points[place].flat, flatten(changed(points[place], {name: value}).model_dump(mode="json"))
    assert value in SPACE[name].around(points[place])
    assert {key: after.get(key) for key in expected} == expected
    assert any(before.get(key) != after.get(key) for key in expected)


@pytest.mark.parametrize("name", SPACE)
def test_an_entry_changes_its_own_keys_and_can_be_trained(name, points, spaces):
    for place, point in points.items():
        values = spaces[place].get(name, [])
        before = flatten(changed(point, {}).model_dump(mode="json"))
        assert not values or (SPACE[name].chosen(point) in values and len(set(values)) == len(values) > 1)
        for value in values:
            recipe = changed(point, {name: value})
            check(recipe)
            after = flatten(recipe.model_dump(mode="json"))
            others = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
            assert all(any(touches(key, own) for own in SPACE[name].keys) for key in others)
            assert bool(others) == (value != SPACE[name].chosen(point))


def test_every_value_has_words():
    assert SPACE["layers"].shown.format(1) == "+1"
    assert SPACE["size"].shown.format(0.5) == "x 0.5"


def test_entries_go_together(points):
    """Sizes and layers of a family that another entry has put there."""
    point = points["letters"]
    recipe = changed(point, {"family": "transformer", "layers": 1, "size": 0.5, "dropout": 0.1})
    check(recipe)
    encoder = recipe.model["encoder"]
    assert (encoder["kind"], encoder["layers"], encoder["hidden_size"], encoder["dropout"]) == ("transformer", 3, 64, 0.1)
    assert changed(points["subwords"], {"family": "recurrent"}).model["encoder"]["hidden_size"] == 64


def test_what_makes_no_sense_is_absent(points, spaces):
    assert "vocabulary" not in spaces["letters"]
    assert "vocabulary" in spaces["subwords"]
    assert "copying" not in spaces["letters"]  # nothing to copy
    assert "copying" in searched(points["letters"]._replace(copied=0.3))
    assert "copying" not in searched(points["own subwords"]._replace(copied=0.3))  # pieces of two kinds
    assert "family" in spaces["subwords"]
    assert "family" not in spaces["of a paper"]  # who names a system wants that system


def test_no_fewer_layers_than_one(spaces):
    assert spaces["letters"]["layers"][0] == 0
    assert spaces["subwords"]["layers"][0] == -1


@pytest.mark.parametrize("name", SPACE)
def test_a_fixed_key_is_not_searched(name, points, monkeypatch):
    monkeypatch.setattr(space, "can_be_trained", lambda *asked: True)  # which another test asks of every value
    point = points[EXPECTED[name][0]]
    assert name in searched(point)
    for key in SPACE[name].keys:
        assert name not in searched(point, [key])
        assert name not in searched(point, [f"{key}.more"])


def test_a_fixed_key_fixes_the_family_too(points):
    assert "family" not in searched(points["letters"], ["model.encoder.hidden_size"])
    assert "dropout" in searched(points["letters"], ["model.encoder.hidden_size"])


def test_values_that_cannot_be_trained_are_left_out(points):
    values = points["letters"].values
    huge = {**values["model"]["encoder"], "hidden_size": 60_000}
    point = points["letters"]._replace(values={**values, "model": {**values["model"], "encoder": huge}})
    assert 2.0 not in searched(point).get("size", [])


def test_test_sets_are_no_business_of_a_search(points):
    values = points["letters"].values
    point = points["letters"]._replace(values={**values, "data": {**values["data"], "test": {"a": {"pairs": "/none.tsv"}}}})
    assert changed(point, {"dropout": 0.1}).data.test == {}
