"""Checkpoints under damage, edits and full disks: only whole ones count, and each knows its recipe."""

import json
import os
import random
import shutil

import pytest
import yaml
from calling import refused, regard, start
from small import digests, small_recipe

from regard import run
from regard.data.sealed import MANIFEST, manifest_bytes
from regard.errors import UserError
from regard.models.directory import find_model
from regard.recipe import override
from regard.run_directory import HEADER
from regard.training import loop
from regard.training.journal import read_journal


def newest(directory):
    return max((directory / "checkpoints").glob("step-?????????"))


def flip(path, chance):
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["model.safetensors", "progress.json", MANIFEST])
def test_the_last_whole_checkpoint_is_never_removed(tmp_path, name, capsys):
    """The newest is damaged and one is kept: the damaged one used to be that one."""
    short = ("training.keep_last=1", "training.save_every=4")
    run.train(small_recipe(8, *short, "training.keep_last=2"), tmp_path, talk=False)
    flip(newest(tmp_path) / name, random.Random(1))
    with pytest.raises(ZeroDivisionError):
        run_until(7, tmp_path, small_recipe(12, *short))  # dies before the next save
    assert (tmp_path / "checkpoints" / "step-000000004").exists()
    assert "does not count" in capsys.readouterr().err
    run.train(small_recipe(12, *short), tmp_path, resume=True, talk=False)
    assert newest(tmp_path).name == "step-000000012"
    assert read_journal(tmp_path / "journal.jsonl")[-1]["step"] == 12


def run_until(step, directory, recipe):
    original = loop.Trainer.update

    def update(self, progress):
        original(self, progress)
        if progress.step == step:
            raise ZeroDivisionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Trainer, "update", update)
        run.train(recipe, directory, resume=True, talk=False)


def test_strays_among_checkpoints_are_named_and_left_alone(own, capsys):
    stray, half = own / "checkpoints" / "step-old", own / "checkpoints" / "step-000000003"
    shutil.copytree(newest(own), own / "checkpoints" / "step-000000002.bak")
    stray.mkdir()
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    run.train(small_recipe(10), own, resume=True, talk=False)
    errors = capsys.readouterr().err
    assert "step-old: no checkpoint of this run" in errors
    assert "step-000000002.bak: no checkpoint" in errors
    assert "step-000000003/manifest.json" in errors
    assert stray.exists()
    assert half.exists()
    assert newest(own).name == "step-000000010"


def test_damaged_weights_of_the_best_step_are_named_and_the_run_ends_all_the_same(own, capsys):
    (best, *_) = sorted((own / "best").glob("step-*"))
    flip(best / "model.safetensors", random.Random(2))
    run.train(small_recipe(6), own, resume=True, talk=False)
    assert "do not count among the best" in capsys.readouterr().err
    assert find_model(own)


def edit(directory, change):
    """As a user would, with an editor."""
    path = directory / "recipe.yaml"
    path.write_text(HEADER + yaml.safe_dump(override(yaml.safe_load(path.read_text()), [change])))


@pytest.mark.parametrize(
    "change", ["training.seed=2", "data.batch_tokens=512", "model.encoder.dropout=0.3", "data.tokenizer.size=99"]
)
def test_an_edit_of_what_the_steps_so_far_depend_on_is_refused(own, change):
    edit(own, change)
    assert f"began with {change.partition('=')[0]}=" in refused("train", "--run", own, "--resume")


def test_an_edit_that_may_be_made_is_said_and_journalled(own):
    edit(own, "training.label_smoothing=0.2")
    result = regard("train", "--run", own, "--resume", "training.updates=8")
    assert "from step 6 on training.label_smoothing=0.2, no longer 0.0" in result.err
    rows = [row for row in read_journal(own / "journal.jsonl") if "changed" in row]
    assert rows == [{"step": 6, "changed": {"training.label_smoothing": [0.0, 0.2], "training.updates": [6, 8]}}]


def test_the_vocabularies_of_another_run_are_refused(own, tmp_path):
    run.train(small_recipe(2, "data.corpus.seed=9"), tmp_path / "other", talk=False)
    shutil.rmtree(own / "fields")
    shutil.copytree(tmp_path / "other" / "fields", own / "fields")
    with pytest.raises(UserError, match="other vocabularies"):
        run.train(small_recipe(6), own, resume=True, talk=False)


def test_a_run_that_began_before_there_were_fields_goes_on(own, finished, tmp_path):
    """It kept its tokenizers in a folder of that name, and its store was of another format."""
    other = shutil.copytree(finished, tmp_path / "other")
    (own / "fields").rename(own / "tokenizers")
    manifest = own / "data" / MANIFEST
    content = json.loads(manifest.read_text())
    content["facts"]["store"] = 2
    manifest.write_bytes(manifest_bytes({key: value for key, value in content.items() if key != "seal"}))
    for directory in (own, other):
        run.train(small_recipe(8), directory, resume=True, talk=False)
    assert not (own / "fields").exists()
    assert digests(own) == digests(other)


def test_a_checkpoint_knows_its_recipe(finished):
    facts = json.loads((newest(finished) / MANIFEST).read_text())["facts"]["identity"]
    assert facts["recipe"]["training"]["updates"] == 6
    assert len(facts["tokenizers"]) == len(facts["files"]) == 2


def test_weights_that_are_not_finite_are_never_saved(tmp_path):
    recipe = small_recipe(20, "training.warmup=0", "training.schedule=constant", "training.clip=1e30")
    recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"learning_rate": 1e38})})
    with pytest.raises(UserError, match="not finite"):
        run.train(recipe, tmp_path, talk=False)
    from safetensors.torch import load_file

    for path in tmp_path.rglob("*.safetensors"):
        assert all(tensor.isfinite().all() for tensor in load_file(path).values()), path


def test_nothing_rotates_while_steps_are_left_out(tmp_path, monkeypatch):
    run.train(small_recipe(6), tmp_path, talk=False)
    before = {path.name for path in (tmp_path / "checkpoints").iterdir()}
    monkeypatch.setattr(loop.Trainer, "step_or_skip", lambda self, progress, rows, *_: self.skip(progress, 1, rows, "it"))
    with pytest.raises(UserError, match="in a row"):
        run.train(small_recipe(40), tmp_path, resume=True, talk=False)
    assert before <= {path.name for path in (tmp_path / "checkpoints").iterdir()}


def test_a_full_disk_is_one_sentence_with_the_path(tmp_path):
    """RLIMIT_FSIZE stands for a disk: a write beyond it fails as one to a full disk does."""
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    (tmp_path / "sitecustomize.py").write_text(code + "; import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)")
    words = ["train", "demo", "--run", tmp_path / "run", "data.corpus.size=40", "training.updates=2", "--quiet"]
    process = start(*words, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"})
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert errors.decode().count("\n") == 1
    assert str(tmp_path / "run") in errors.decode()
    assert "File too large" in errors.decode()


def test_a_score_that_is_no_number_is_never_the_best(tmp_path, monkeypatch):
    scores = iter([float("nan"), 2.0, float("nan"), 2.0])
    original = loop.Trainer.__init__

    def scripted(self, *arguments):
        original(self, *arguments)
        self.validate = lambda: {"loss": 1.0, "bleu": next(scores)}

    monkeypatch.setattr(loop.Trainer, "__init__", scripted)
    run.train(small_recipe(6, "training.validate_every=2", "training.average=1"), tmp_path, talk=False)
    progress = json.loads((newest(tmp_path) / "progress.json").read_text())
    assert progress["best"] == [[2.0, 4, 1.0]]


def test_another_text_is_seen_though_the_record_of_the_first_is_damaged(own, tmp_path, capsys):
    """The store is built again from what is there; the checkpoint knows what it learnt from."""
    texts = {side: own / "corpus" / f"train.{side}" for side in ("la", "en")}
    files = [f"data.train.{name}={tmp_path / f'mine.{side}'}" for name, side in (("source", "la"), ("target", "en"))]
    for side, path in texts.items():
        shutil.copy(path, tmp_path / f"mine.{side}")
    recipe = small_recipe(4, *files, "data.corpus=null", "data.held_out=10")
    run.train(recipe, tmp_path / "run", talk=False)
    (tmp_path / "run" / "data" / MANIFEST).write_text("spoilt")
    lines = (tmp_path / "mine.la").read_text().splitlines(keepends=True)
    (tmp_path / "mine.la").write_text("".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(UserError, match="another training text"):
        run.train(recipe, tmp_path / "run", resume=True, talk=False)
