"""The check of law 12 runs over every recipe, and sees what differs."""

from pathlib import Path

import bit_equal
import pytest
from recipes_by_shape import WRITERS

from regard.models import configure
from regard.recipe import Recipe, override, parse, read_values


@pytest.mark.parametrize("name", [*WRITERS, *bit_equal.VARIANTS])
def test_every_recipe_is_made_small_and_nothing_else(name):
    recipe, *words = bit_equal.words(name, Path("data"))
    values = read_values(recipe)
    if "--text" in words:
        values["data"]["train"] = {"text": "data/train.en"}
    if "--source" in words:
        values["data"] = {key: value for key, value in values["data"].items() if key != "corpus"}
        values["data"]["train"] = {"source": "data/train.la", "target": "data/train.en"}
    small = parse(Recipe, override(values, [word for word in words if "=" in word and word != "data.corpus=null"]))
    configure(small.model)
    own = parse(Recipe, read_values(recipe))
    assert (small.training.updates, small.training.log_every, small.training.precision) == (20, 1, "float32")
    if name not in bit_equal.VARIANTS:
        assert small.training.penalties == own.training.penalties
        assert (small.training.risk is None) == (own.training.risk is None)
        assert str(small.model).count("dropout") == str(own.model).count("dropout")
        assert dropouts(small.model) == dropouts(own.model)


def dropouts(model):
    if not isinstance(model, dict):
        return []
    return [value for key in sorted(model) for value in ([model[key]] if "dropout" in key else dropouts(model[key]))]


RECORD = {
    "demo": {
        "losses": ["0x1p+2", "0x1p+1"],
        "weights": ["[2] aa"],
        "greedy": ["-1.0\ta"],
        "journal": {"valid_loss": ["0x1p+0"]},
    }
}


@pytest.mark.parametrize(
    ("part", "value", "told"),
    [
        ("losses", ["0x1p+2", "0x1.8p+1"], "demo.losses: 1 of 2 differ, first at 1: 0x1p+1 -> 0x1.8p+1"),
        ("weights", ["[2] ab"], "demo.weights: 1 of 1 differ, first at 0: [2] aa -> [2] ab"),
        ("greedy", ["-1.0\ta", "-1.0\ta"], "demo.greedy: ['-1.0\\ta'] -> ['-1.0\\ta', '-1.0\\ta']"),
        ("journal", {"valid_loss": ["0x1p+1"]}, "demo.journal.valid_loss: 1 of 1 differ, first at 0: 0x1p+0 -> 0x1p+1"),
    ],
)
def test_a_difference_is_told(part, value, told):
    assert list(bit_equal.differences(RECORD, {"demo": {**RECORD["demo"], part: value}}, "")) == [told]


def test_what_is_missing_is_a_difference_and_what_is_new_is_none():
    assert list(bit_equal.differences(RECORD, {}, "")) == ["demo: only before"]
    assert list(bit_equal.differences(RECORD, {**RECORD, "other": {}}, "")) == []


@pytest.mark.slow
def test_two_records_of_one_tree_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    paths = [tmp_path / "one.json", tmp_path / "two.json"]
    assert [bit_equal.record(path, ["demo", "liu2018-dmca-moe"]) for path in paths] == [0, 0]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert bit_equal.compare(paths, []) == 0
