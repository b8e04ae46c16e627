"""`--import`: parts of one's own from the command line, what a run and a model remember of them, and what never runs."""

import hashlib
import json
import sys
from importlib import import_module

import pytest
import yaml
from calling import refused, regard
from own_parts import TABLES, as_in_a_new_process

import regard as package
from regard.cli import app
from regard.errors import UserError
from regard.imports import GIVEN, advice

MINE = """
from pathlib import Path
from regard.nn.recurrent.cells import CELLS
from regard.data.tokenizers import TOKENIZERS
from regard.decoding.ranking import NORMALISATIONS

class Mine(CELLS["gru"]):
    pass

class Shouting(TOKENIZERS["word"]):
    kind = "shouting"

CELLS["mine"] = Mine
TOKENIZERS["shouting"] = Shouting
NORMALISATIONS["none"] = lambda length, penalty: 1.0
Path(__file__).with_suffix(".ran").touch()
"""
NAMED = ["model.encoder.cell=mine", "data.tokenizer.kind=shouting", "decoding.length_norm=none"]
SMALL = [
    "model.encoder.embedding_size=8", "model.encoder.hidden_size=8", "model.decoder.embedding_size=8",
    "model.decoder.hidden_size=8", "model.decoder.attention.size=8", "data.batch_tokens=256", "data.held_out=10",
    "decoding.max_length=5", "decoding.beam=1", "training.updates=2",
]  # fmt: skip


@pytest.fixture(autouse=True)
def forgotten():
    with as_in_a_new_process():
        yield


@pytest.fixture(scope="module")
def mine(corpus, tmp_path_factory):
    """A file of one's own, and a run that was trained with it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "mine.py").write_text(MINE)
    files = ["--source", corpus / "train.source", "--target", corpus / "train.target"]
    with as_in_a_new_process():
        result = regard(
            "train", "latin-gru", *files, "--import", folder / "mine.py", "--run", folder / "run", "--quiet", *SMALL, *NAMED
        )
        assert result == (0, "", "")
    (folder / "mine.ran").unlink()
    return folder


def test_a_run_and_a_model_remember_what_they_were_made_with(mine):
    told = {str(mine / "mine.py"): hashlib.sha256(MINE.encode()).hexdigest()}
    assert yaml.safe_load((mine / "run" / "recipe.yaml").read_text())["imports"] == told
    assert yaml.safe_load((mine / "run" / "model" / "recipe.yaml").read_text())["imports"] == told
    assert json.loads((mine / "run" / "model" / "config.json").read_text())["imports"] == told
    assert f"generate MODEL --import {mine / 'mine.py'} <" in (mine / "run" / "model" / "README.md").read_text()


VERBS = {
    "generate": [],
    "look": ["amicus"],
    "evaluate": ["--pairs", "none.tsv"],
    "train": ["--resume"],
}


@pytest.mark.parametrize("verb", VERBS)
def test_without_it_the_missing_entry_is_named_and_nothing_is_executed(mine, verb):
    where = ["--run", mine / "run"] if verb == "train" else [mine / "run"]
    told = refused(verb, *where, *VERBS[verb])
    assert "unknown normalisation of length 'none'" in told or "unknown cell 'mine'" in told or "'shouting'" in told
    assert told.endswith(f"made with --import {mine / 'mine.py'}; give it again")
    assert not (mine / "mine.ran").exists()


def test_each_missing_entry_of_a_model_is_named(mine):
    """One after the other, as the directory is read."""
    register("NORMALISATIONS", "none", "power")
    with pytest.raises(UserError, match=r"config\.json.*unknown cell 'mine'.*give it again"):
        package.load(mine / "run")
    register("CELLS", "mine", "gru")
    with pytest.raises(UserError, match=r"tokenizer\.json.*unknown tokenizer 'shouting'.*give it again"):
        package.load(mine / "run")


def register(table, name, base):
    entries = getattr(import_module(TABLES[table]), table)
    entries[name] = entries[base]


def test_with_it_the_model_is_used_and_the_run_goes_on(mine):
    with as_in_a_new_process():
        first = regard("generate", mine / "run", "--import", mine / "mine.py", stdin=b"amicus bellum\n")
        assert (first.code, len(first.lines), "error" in first.err) == (0, 1, False)
    with as_in_a_new_process():
        code, out, _ = regard("verify", mine / "run", "--import", mine / "mine.py")
        assert code == 0
        assert "are whole" in out
    with as_in_a_new_process():
        assert regard("train", "--run", mine / "run", "--resume", "--quiet", "--import", mine / "mine.py") == (0, "", "")
    code, out, _ = regard("verify", mine / "run")
    assert code == 1
    assert "give it again" in out


def test_importing_it_in_python_does_the_same(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    try:
        import mine as brought

        assert brought.CELLS["mine"] is brought.Mine
        assert len(package.load(mine / "run").generate(["amicus"])) == 1
        assert GIVEN == {}
    finally:
        sys.modules.pop("mine", None)


def test_a_module_by_its_name(mine, monkeypatch):
    monkeypatch.syspath_prepend(mine)
    try:
        assert regard("generate", mine / "run", "--import", "mine", stdin=b"amicus\n").code == 0
        assert GIVEN == {"mine": None}
    finally:
        sys.modules.pop("mine", None)


def test_another_version_of_the_file_is_told(mine):
    recorded = {str(mine / "mine.py"): "0" * 64}
    GIVEN[str(mine / "mine.py")] = "1" * 64
    assert advice(recorded) == f"made with another version of {mine / 'mine.py'}"
    assert advice({"elsewhere.py": "1" * 64}) == ""  # the same file by another name
    assert advice({"a.py": None, "b.py": "2"}) == "made with --import a.py --import b.py; give it again"
    assert advice(None) == advice([1]) == ""


BAD = {
    "x = 1\nthis is no Python\n": "{path}:2: not valid Python: invalid syntax",
    "def f():\n    return 1 / 0\nx = 2\nf()\n": "{path}:2: ZeroDivisionError: division by zero",
    "import json\njson.loads('{')\n": "{path}:2: JSONDecodeError: Expecting property name",
    "raise SystemExit(0)\n": "{path}:1: SystemExit: 0",
    "import nosuchmodule_\n": "{path}:1: ModuleNotFoundError: No module named 'nosuchmodule_'",
    "from regard.nn.recurrent.cells import CELLZ\n": "{path}:1: ImportError: cannot import name 'CELLZ'",
}


@pytest.mark.parametrize("code", BAD)
def test_a_bad_file_is_one_message_with_its_line(code, tmp_path):
    path = tmp_path / "bad.py"
    path.write_text(code)
    told = refused("recipes", "--import", path)
    assert told.startswith(f"--import {path}: {BAD[code].format(path=path)}")
    assert "\n" not in told
    assert not GIVEN


def test_what_is_not_there(tmp_path):
    assert refused("recipes", "--import", tmp_path / "a.py") == f"--import {tmp_path / 'a.py'}: No such file or directory"
    assert refused("recipes", "--import", "no_such_module") == (
        "--import no_such_module: no module of this name can be found (the name of a file ends in .py)"
    )
    (tmp_path / "null.py").write_bytes(b"x = 1\0")
    assert "null.py" in refused("recipes", "--import", tmp_path / "null.py")


def test_every_verb_takes_it_more_than_once(tmp_path):
    for command in app.registered_commands:
        assert "--import" in regard(command.name or command.callback.__name__, "--help").out
    assert all("--import" in regard("lab", name, "--help").out for name in ("cells", "attention"))
    for name in ("a", "b"):
        (tmp_path / f"{name}.py").write_text(
            "from regard.corpora import CORPORA\nfrom dataclasses import replace\n"
            f"CORPORA['own_{name}'] = replace(CORPORA['latin'], name='own_{name}')\n"
        )
    listed = regard("corpora", "--import", tmp_path / "a.py", "--import", tmp_path / "b.py").out
    assert "own_a" in listed
    assert "own_b" in listed
