"""`regard lab` as it is called."""

import gzip
import json

import pytest
import torch
from calling import refused, regard

SMALL = ["lab", "cells", "--setting", "smoke", "--cells", "tanh,gru"]


def test_experiments_are_listed():
    code, out, err = regard("lab")
    assert (code, err) == (0, "")
    assert " cells " in out
    assert regard("lab", "--help").out == out
    assert " lab " in regard("--help").out


def test_a_table_and_its_files(tmp_path):
    words = [*SMALL, "--tasks", "arith", "--out", tmp_path / "lab"]
    code, out, err = regard(*words)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("  tanh", "  gru"))] == ["tanh", "gru"]
    assert out.count("±") == 2
    assert err.count("\n") == 2 * (2 + 2)
    assert "arith  gru             test   2  size" in err
    assert {path.name for path in (tmp_path / "lab").iterdir()} >= {"table.md", "results.json", "trials.jsonl", "setting.json"}
    assert regard(*words) == (0, out, "")


def test_rows_for_programs_on_a_text_of_ones_own(tmp_path):
    file = tmp_path / "text.gz"
    file.write_bytes(gzip.compress(b"the king sees the queen\n" * 40))
    words = ["--tasks", "words", "--text", file, "--valid-text", file, "--test-text", file]
    code, out, _ = regard(*SMALL, *words, "--seeds", 1, "--out", tmp_path / "lab", "--json")
    assert code == 0
    rows = json.loads(out)
    assert [(row["task"], row["cell"], len(row["figures"])) for row in rows] == [("words", "tanh", 1), ("words", "gru", 1)]
    assert rows == json.loads((tmp_path / "lab" / "results.json").read_text())
    assert "the text is text.gz" in (tmp_path / "lab" / "table.md").read_text()
    assert "was begun with sha256=" in refused(*SMALL, "--tasks", "words", "--out", tmp_path / "lab")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cells", "gruu"], "unknown cell 'gruu'; did you mean 'gru'?"),
        (["--cells", "tanh,,gru"], "unknown cell ''; choose from"),
        (["--tasks", "arth"], "unknown task 'arth'; did you mean 'arith'?"),
        (["--setting", "quik"], "unknown setting 'quik'; did you mean 'quick'?"),
        (["--quick", "--setting", "gpu"], "--quick means --setting quick, not --setting gpu"),
        (["--text", "a"], "--text, --valid-text and --test-text go together"),
        (["--text", "a", "--valid-text", "b", "--test-text", "c"], "a: cannot be read: No such file"),
    ],
)
def test_errors(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refused("lab", "cells", *words)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_the_gpu_setting_needs_a_gpu(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "device 'cuda' was asked for" in refused("lab", "cells", "--setting", "gpu", "--tasks", "arith")
    assert not list(tmp_path.iterdir())


def test_another_setting_in_the_same_directory(tmp_path):
    words = ["--cells", "tanh", "--tasks", "arith", "--out", tmp_path]
    assert regard("lab", "cells", "--setting", "smoke", *words).code == 0
    assert f"{tmp_path}: was begun with " in refused("lab", "cells", "--quick", *words)
