"""What can be asked without a model: help, the version, recipes, corpora; and that asking is cheap."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml
from calling import regard

import regard as package
from regard import recipe
from regard.cli import app
from regard.cli.plain_help import plain
from regard.corpora import CORPORA

VERBS = [command.name or command.callback.__name__ for command in app.registered_commands]


def test_help_names_every_verb():
    code, out, _ = regard("--help")
    assert code == 0
    assert all(f" {verb} " in out for verb in VERBS)
    assert regard("-h").out == out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb):
    code, out, err = regard(verb, "--help")
    assert (code, err) == (0, "")
    assert f"regard {verb}" in out
    assert not re.search(r"<(?!TAB)\w+|\]\.\.\.\]", out)  # kinds of values
    assert not re.search(r"\bblanks?\b|parted|one a line|for each to|the house", out)


def test_values_are_called_what_they_are():
    out = regard("train", "--help").out
    for option, value in (("--run", "DIR"), ("--source", "FILE"), ("--minutes", "NUMBER"), ("--column", "NAME=PLACE")):
        assert re.search(rf"{option} .* {value} ", out)
    assert "regard train [OPTIONS] [RECIPE] [KEY=VALUE]..." in out
    assert "Invalid value for '--minutes'" in regard("train", "--minutes", "0").err


def test_version():
    assert regard("--version") == (0, f"regard {package.__version__}\n", "")


def test_help_is_cheap():
    program = (
        "import sys, regard.cli\nsys.argv = ['regard', '--help']\ntry: regard.cli.main()\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'numpy', 'pydantic', 'yaml') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-1] == "[]"


def test_recipes_are_listed_and_each_one_loads_again(tmp_path):
    shipped = recipe.built_in()
    code, listed, _ = regard("recipes")
    assert code == 0
    assert [line.split()[0] for line in listed.splitlines()] == list(shipped)
    for name in shipped:
        file = tmp_path / f"{name}.yaml"
        file.write_text(regard("recipes", name).out)
        assert recipe.read(file) == recipe.read(name)
        assert yaml.safe_load(file.read_text())["about"] in listed


def test_corpora_are_listed():
    code, listed, _ = regard("corpora")
    assert code == 0
    assert [line.split()[0] for line in listed.splitlines()] == list(CORPORA)


def test_a_corpus_is_written_with_its_alignments(tmp_path):
    result = regard("corpora", "latin", "--out", tmp_path / "new" / "folder", "--size", "50")
    assert result.code == 0
    files = sorted((tmp_path / "new" / "folder").iterdir())
    assert sorted(result.lines) == [str(file) for file in files]
    counts = {file.name: len(file.read_text().splitlines()) for file in files}
    assert {counts[f"train.{suffix}"] for suffix in ("la", "en", "align")} == {50}


def test_versions_of_typer_that_name_no_kinds_keep_their_own_words():
    """Before 0.29 an option has no `display_type`, and every command fell over it."""
    older = SimpleNamespace(metavar=None, opts=["--beam"])
    plain(older, None)
    assert older.metavar is None
