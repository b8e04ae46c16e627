"""Directories where others would name a recipe or a finished model: a run as a recipe, a run that still trains."""

import os
import shutil
import signal

import pytest
import torch
from calling import refused, regard
from safetensors.torch import load_file

import regard as package
from regard.models import unfinished
from regard.training import loop

STEPS = ["training.validate_every=2", "training.save_every=4"]


@pytest.fixture(scope="module")
def stopped(corpus, tmp_path_factory):
    """A run that was stopped at step 9: validated at 2, 4, 6 and 8, saved at 4, 8 and 9."""

    def update(self, progress):
        original(self, progress)
        if progress.step == 9:
            os.kill(os.getpid(), signal.SIGINT)

    original, folder = loop.Trainer.update, tmp_path_factory.mktemp("stopped") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Trainer, "update", update)
        assert regard("train", corpus / "capitals.yaml", "--run", folder, "--quiet", *STEPS).code == 130
    assert not (folder / "model").exists()
    return folder


def files_of(folder):
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize("verb", ["train", "plan", "recipes"])
def test_a_run_is_a_recipe(verb, trained, tmp_path):
    given = trained if verb == "plan" else trained / "model"
    changes = {"train": ["--run", tmp_path / "run", "training.updates=2"], "plan": ["--json"], "recipes": []}
    code, out, err = regard(verb, given, *changes[verb])
    assert code == 0
    assert f"{given} is a directory: its recipe.yaml is taken as the recipe" in err
    if verb == "recipes":
        assert out == (given / "recipe.yaml").read_text()
    if verb == "train":
        assert "embedding_size: 24" in (tmp_path / "run" / "recipe.yaml").read_text()


def test_a_run_without_a_recipe_named_is_to_be_continued(trained):
    told = refused("train", "--run", trained, "training.updates=4")
    assert told == f"there is a run in {trained}: continue it with --resume, or name a recipe and another --run"


VERBS = {
    "generate": ([], b"amicus canis\n"),
    "look": (["amicus", "--target", "AMICUS"], b""),  # what has hardly been trained may write nothing
    "evaluate": ([], b""),
    "align": (["--source", "{0}/short.source", "--target", "{0}/short.target"], b""),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_that_still_trains_answers_with_its_best_weights_so_far(verb, stopped, corpus):
    before, (options, stdin) = files_of(stopped), VERBS[verb]
    code, out, err = regard(verb, stopped, *(word.format(corpus) for word in options), stdin=stdin)
    best = unfinished.ranking(stopped / "checkpoints" / "step-000000009")[0]
    assert (code, bool(out)) == (0, True), err
    assert f"{stopped}: the run is still training, or was stopped: using step {best}, the best so far" in err
    assert files_of(stopped) == before


def test_the_weights_are_those_of_the_best_step(stopped, capsys):
    model = package.load(stopped, device="cpu").model
    best = unfinished.ranking(stopped / "checkpoints" / "step-000000009")[0]
    for name, tensor in load_file(stopped / "best" / f"step-{best:09d}" / "model.safetensors").items():
        torch.testing.assert_close(model.state_dict()[name], tensor, rtol=0, atol=0)


def test_before_the_first_validation_the_newest_checkpoint_answers(stopped, tmp_path, monkeypatch):
    run = shutil.copytree(stopped, tmp_path / "run")
    monkeypatch.setattr(unfinished, "ranking", lambda checkpoint: [])
    shutil.rmtree(run / "best")
    assert "using step 9, the newest so far" in regard("generate", run, stdin=b"amicus\n").err


def test_what_vanishes_while_it_is_read_is_looked_for_again(stopped, tmp_path, monkeypatch):
    run, verify, looks = shutil.copytree(stopped, tmp_path / "run"), unfinished.verify, []
    hidden = run / "hidden"

    def vanish(folder):
        if folder.parent.name == "best":
            looks.append(folder)
            if len(looks) == 1:
                folder.rename(hidden)
            elif hidden.exists():
                hidden.rename(folder)
        return verify(folder)

    monkeypatch.setattr(unfinished, "verify", vanish)
    monkeypatch.setattr(unfinished, "PAUSE", 0)
    assert regard("generate", run, stdin=b"amicus\n").code == 0
    assert len(looks) == 2


def test_weights_that_stay_away_are_named(stopped, tmp_path, monkeypatch):
    run = shutil.copytree(stopped, tmp_path / "run")
    monkeypatch.setattr(unfinished, "PAUSE", 0)
    shutil.rmtree(run / "best")
    assert f"{run / 'best'}" in refused("generate", run)


def test_a_trainer_is_not_disturbed(corpus, tmp_path, monkeypatch):
    """It is asked between any two steps; the model is that of a run that nobody asked."""
    words = ["training.updates=12", "training.validate_every=2", "training.save_every=2", "training.keep_last=1", "--quiet"]
    asked, alone, answers, original = tmp_path / "asked", tmp_path / "alone", [], loop.Trainer.update
    assert regard("train", corpus / "capitals.yaml", "--run", alone, *words).code == 0

    def update(self, progress):
        original(self, progress)
        answers.append(regard("generate", asked, stdin=b"amicus\n"))

    monkeypatch.setattr(loop.Trainer, "update", update)
    assert regard("train", corpus / "capitals.yaml", "--run", asked, *words).code == 0
    assert [answer.code for answer in answers] == [2, 2, *[0] * 10]  # nothing is written before the second step
    assert all("still training" in answer.err for answer in answers[2:])
    weights = [load_file(run / "model" / "model.safetensors") for run in (asked, alone)]
    assert all(weights[0][name].equal(tensor) for name, tensor in weights[1].items())


def test_a_recipe_that_was_chosen_from_data_is_kept_whole_and_trains_the_same_again(corpus, tmp_path):
    files = ["--source", corpus / "train.source", "--target", corpus / "train.target"]
    small = ["training.updates=3", "training.validate_every=2", "data.batch_tokens=256"]
    assert regard("train", *files, "--run", tmp_path / "first", "--quiet", *small).code == 0
    assert regard("train", tmp_path / "first" / "recipe.yaml", "--run", tmp_path / "again", "--quiet").code == 0
    first, again = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("first", "again"))
    assert first == again
    assert (tmp_path / "first" / "recipe.yaml").read_text() == (tmp_path / "again" / "recipe.yaml").read_text()
