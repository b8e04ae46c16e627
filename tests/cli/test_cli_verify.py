"""`regard verify`: file by file what is whole and what is not."""

import json
import os
import shutil

import pytest
from calling import refused, regard

from regard.data.sealed import files_in


def states(*words):
    """Exit code, and what is said of each path."""
    code, out, err = regard("verify", *words)
    assert err == ""
    *lines, summary = out.splitlines()
    return code, dict(line.split(": ", 1) for line in lines), summary


def test_a_whole_run_is_said_to_be_whole_file_by_file(trained):
    code, found, summary = states(trained)
    assert code == 0
    assert summary == f"{trained}: all {len(found)} are whole"
    sealed = [*("fields", "data", "model"), *(f"{path.parent.name}/{path.name}" for path in trained.glob("*/step-*"))]
    files = {str(path) for name in sealed for _, path in files_in(trained / name)}
    loaded = {str(trained / "fields"), str(trained / "model")}
    assert found.keys() == files | {str(trained / "recipe.yaml"), str(trained / "journal.jsonl")} | loaded
    assert {state for path, state in found.items() if path not in loaded} == {"whole"}
    assert {found[path] for path in loaded} == {"can be loaded"}


def test_a_model_and_a_checkpoint_alone(trained):
    assert states(trained / "model")[0] == states(next(trained.glob("checkpoints/step-*")))[0] == 0


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def fifo(path):
    path.unlink()
    os.mkfifo(path)


def shorten(path):
    path.write_bytes(b"")


def lengthen(path):
    path.write_bytes((path.read_bytes() if path.exists() else b"") + b"{]\n")


DAMAGES = {
    "recipe.yaml": [(lengthen, "damaged: "), (os.unlink, "missing"), (fifo, "damaged: not a plain file")],
    "journal.jsonl": [(lengthen, "damaged: line "), (os.unlink, "missing"), (fifo, "damaged: not a plain file")],
    "fields/source/tokenizer.json": [(flip, "damaged: its checksum"), (os.unlink, "missing"), (fifo, "not a plain file")],
    "data/manifest.json": [(flip, "damaged: its checksum"), (os.unlink, "missing"), (fifo, "damaged: not a plain file")],
    "model/model.safetensors": [(flip, "damaged: its checksum"), (shorten, "damaged: 0 bytes")],
    "model/more": [(lengthen, "does not belong here")],
}
CASES = [(name, *damage) for name, damages in DAMAGES.items() for damage in damages]


@pytest.mark.parametrize(("name", "damage", "told"), CASES, ids=[f"{name}-{told}" for name, _, told in CASES])
def test_every_damage_is_named_and_the_rest_is_whole(own, name, damage, told):
    damage(own / name)
    code, found, summary = states(own)
    assert code == 1
    bad = {path: state for path, state in found.items() if state not in ("whole", "can be loaded")}
    assert list(bad) == [str(own / name)]
    assert bad[str(own / name)].startswith(told)
    assert summary == f"{own}: 1 of {len(found)} are not whole"


def test_damages_are_named_all_of_them(own):
    steps = sorted(own.glob("checkpoints/step-*"))
    for path in [*(step / "progress.json" for step in steps), own / "model" / "config.json"]:
        flip(path)
    found = json.loads(regard("verify", own, "--json").out)
    assert found["whole"] is False
    bad = [one["path"] for one in found["findings"] if not one["whole"]]
    assert sorted(bad) == sorted([*(str(step / "progress.json") for step in steps), str(own / "model" / "config.json")])


def test_a_model_that_is_whole_and_cannot_be_loaded(own):
    from regard.data.sealed import seal

    model = own / "model"
    config = json.loads((model / "config.json").read_text())
    config["columns"]["source"]["sizes"] = [5]
    (model / "config.json").write_text(json.dumps(config))
    (model / "manifest.json").unlink()
    seal(model, {"kind": "model"})
    code, found, _ = states(model)
    assert code == 1
    assert "and config.json says text of 5" in found[str(model)]


def test_a_run_without_a_model_is_whole(own):
    shutil.rmtree(own / "model")
    assert states(own)[0] == 0


def test_json(trained):
    found = json.loads(regard("verify", trained / "model", "--json").out)
    assert found["path"] == str(trained / "model")
    assert found["whole"] is True
    assert all(set(one) == {"path", "whole", "state"} and one["whole"] for one in found["findings"])


def test_what_is_neither_is_refused(tmp_path, corpus):
    for path in (tmp_path, tmp_path / "nothing", corpus / "train.source"):
        assert refused("verify", path).startswith(f"{path}: neither a run nor a model directory")
