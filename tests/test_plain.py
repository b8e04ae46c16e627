"""YAML and JSON that nobody vouches for: values within limits, or one problem and its line."""

import json

import pytest
import yaml

from regard.models.directory import read_config
from regard.overrides import override
from regard.plain import CHARACTERS, DEPTH, VALUES, from_yaml, unique
from regard.recipe import RecipeError, built_in, read


def chain(link, count=9):
    """Aliases of aliases: nine times as many values in every row."""
    rows = ["b0: &b0 {x: 1}"]
    rows += [f"b{at}: &b{at} " + link.format(", ".join([f"*b{at - 1}"] * 9)) for at in range(1, count)]
    return "\n".join(rows)


WRONG = {
    "merges of merges": (chain("{{<<: [{}]}}"), f"more than {VALUES:,} values"),
    "lists of lists": (chain("[{}]"), f"more than {VALUES:,} values"),
    "itself": ("a: &a [*a]", f"nested more than {DEPTH} levels"),
    "itself, merged": ("a: &a {<<: *a}", f"nested more than {DEPTH} levels"),
    "deep": ("a: " + "[" * 60_000, f"nested more than {DEPTH} levels"),
    "deep blocks": ("- " * 30_000, f"nested more than {DEPTH} levels"),
    "long": ("a: 1\n" * CHARACTERS, f"longer than {CHARACTERS:,} characters"),
    "no int": ("a: !!int x", "'x' is no int"),
    "no bool": ("a: !!bool maybe", "'maybe' is no bool"),
    "digits": ("a: 0x" + "f" * 5000, "is no int"),
    "decimal digits": ("a: " + "9" * 5000, "is no int"),
    "binary": ("a: !!binary aGk=", "no values of the kind"),
    "code": ("a: !!python/name:os.system", "no values of the kind"),
    "set": ("a: !!set {b}", "no values of the kind"),
    "a list as a key": ("? [a]\n: 1", "a key is a word"),
    "no such letter": ('a: "\\U00110000"', "not in range"),
    "half a letter": ('a: "\\ud800"', "surrogate"),
    "merged number": ("a: {<<: 3}", "takes a mapping"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name):
    text, message = WRONG[name]
    with pytest.raises(yaml.YAMLError) as error:
        from_yaml(text)
    assert message in str(error.value)


def test_a_key_that_stands_there_twice_is_told_with_both_lines(tmp_path):
    (tmp_path / "twice.yaml").write_text("training:\n  updates: 3\n  seed: 1\n  updates: 4\n")
    with pytest.raises(RecipeError, match=r"twice\.yaml:4: .*the key 'updates' stands there twice: it is in line 2 too"):
        read(tmp_path / "twice.yaml")
    with pytest.raises(RecipeError, match="the key 'a' stands there twice"):
        override({}, ["data.test={a: {pairs: x.tsv}, a: {pairs: y.tsv}}"])


def test_a_json_key_that_stands_there_twice(tmp_path):
    with pytest.raises(ValueError, match="the key 'b' stands there twice"):
        json.loads('{"a": {"b": 1, "c": 2, "b": 3}}', object_pairs_hook=unique)
    (tmp_path / "config.json").write_text('{"format": 1, "model": {}, "model": {}}')
    with pytest.raises(ValueError, match=r"config\.json: .*the key 'model' stands there twice"):
        read_config(tmp_path / "config.json")


def test_what_is_plain_is_read_as_before():
    for name, text in built_in().items():
        assert from_yaml(text) == yaml.safe_load(text), name
    text = "a: &a {x: 1, y: [1.5, true, ~, no, 0x10]}\nb: {<<: *a, x: 2}\nc: {<<: [{z: 1, x: 9}, *a]}\nd: *a\n"
    assert from_yaml(text) == yaml.safe_load(text)


def test_keys_and_dates_are_text():
    assert from_yaml("2016: 1\non: 2\nday: 2026-11-18\nseed: 2026-13-45") == {
        "2016": 1, "on": 2, "day": "2026-11-18", "seed": "2026-13-45",
    }  # fmt: skip
