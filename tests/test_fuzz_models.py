"""Some hundred hostile model directories: each is loaded or refused in a sentence. `benchmarks/fuzz_models.py` makes more."""

import random

import fuzz_models
import pytest


@pytest.mark.slow
def test_no_hostile_model_ends_in_a_traceback_or_hangs():
    told = []
    row = fuzz_models.fuzz(300, seed=2, tell=told.append)
    assert row["tracebacks"] == row["hangs"] == 0, "\n".join(line for line in told if ": traceback" in line or ": hang" in line)
    assert row["loaded"] > 30
    assert row["refused"] > 100
    assert row["largest_megabytes"] < 500


def test_a_traceback_and_a_hang_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_models, "SECONDS", 1)
    for ending, work in (("traceback", lambda path: 1 / 0), ("hang", lambda path: fuzz_models.time.sleep(60))):
        monkeypatch.setattr(fuzz_models, "load_model", work)
        assert fuzz_models.attempt(tmp_path).ending == ending


@pytest.mark.parametrize("name", fuzz_models.HOSTILITIES)
def test_every_hostility_changes_something(tmp_path, name):
    models = fuzz_models.make_models(tmp_path / "models")[2:3]
    good = {name: path.read_bytes() for name, path in fuzz_models.files_in(models[0])}
    changed = fuzz_models.shutil.copytree(models[0], tmp_path / "case")
    fuzz_models.HOSTILITIES[name](changed, random.Random(3))
    now = {name: path.read_bytes() if path.is_file() else None for name, path in fuzz_models.files_in(changed)}
    assert now != good
