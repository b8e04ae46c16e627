"""`regard tune` as it is typed: what a study leaves, how it goes on, what it refuses."""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from calling import refused, regard
from studies import facts_without_time, write_table

import regard as package
from regard.drafting import Files
from regard.recipe import read
from regard.run_directory import is_run
from regard.training.checkpoint import Checkpoints
from regard.tuning import proposals, study
from regard.tuning.halving import Limits
from regard.tuning.space import SPACE
from regard.tuning.trials import Ranking, Trial


@pytest.fixture(autouse=True)
def one_picture_is_enough(finished, request, monkeypatch):
    """The finished study has drawn its own; a picture takes longer than a tiny study."""
    if "matplotlib" not in request.node.name:
        monkeypatch.setattr(study.picture, "draw", lambda search, shares: [])


def copied(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "study")


def test_trial_0_is_the_recipe_itself(finished, tiny):
    folder, facts, _ = finished
    first = next(trial for trial in facts["trials"] if trial["trial"] == 0)
    assert (first["differs"], first["ended"], first["step"]) == ("as chosen", True, 9)
    assert read(folder / "trials" / "000" / "recipe.yaml").training == read(tiny).training
    assert facts["chosen"] == first


def test_the_best_is_the_best_in_validation(finished):
    folder, facts, _ = finished
    scores = [trial["score"] for trial in facts["trials"]]
    assert facts["metric"] == "wer"
    assert scores == sorted(scores)
    assert facts["best"] == facts["trials"][0]
    assert len(facts["trials"]) == 5
    rows = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    assert min(row["score"] for row in rows if "score" in row) == facts["best"]["score"]
    journal = Path(facts["best"]["run"]) / "journal.jsonl"
    assert facts["best"]["score"] == min(json.loads(one).get("valid_wer", 1e9) for one in journal.read_text().splitlines())


def test_what_a_study_leaves_can_be_used(finished, tmp_path):
    folder, facts, _ = finished
    best = read(Path(facts["best"]["run"]) / "recipe.yaml")
    left = read(folder / "recipe.yaml")
    assert (left.model, left.data) == (best.model, best.data)
    assert regard("generate", folder, "--beam", 1, stdin=b"canis\n").code == 0
    assert regard("evaluate", folder, "--beam", 1).code == 0
    assert regard("verify", folder).code == 0
    assert regard("train", folder / "recipe.yaml", "--run", tmp_path / "again", "--quiet", "training.updates=2").code == 0
    assert {path.name for path in folder.iterdir()} >= {"tune.json", "tune.png", "tune.svg", "model", "trials", "trials.jsonl"}
    assert json.loads((folder / "tune.json").read_text()) == facts
    assert not is_run(folder)
    assert "this is no run" in refused("train", folder / "recipe.yaml", "--run", folder)


def test_what_is_said(finished, tmp_path):
    _, facts, told = finished
    assert "trial 0, rung 1 of 3, step 1: wer" in told
    assert "(chosen: " in told
    assert set(facts["space"]) < set(SPACE)
    result = regard("tune", "--run", copied(finished, tmp_path), "--resume", "--trials", 5, "--quiet")
    assert (result.code, result.err) == (0, "")
    assert all(f" {trial['trial']} " in result.out for trial in facts["trials"])
    assert f"chosen {facts['chosen']['score']:.4g}, best {facts['best']['score']:.4g}" in result.out
    assert "what mattered: " in result.out
    assert f"regard train {tmp_path / 'study' / 'recipe.yaml'}" in result.out
    shares = facts["importance"]
    assert shares.keys() == facts["space"].keys()
    assert sum(shares.values()) == pytest.approx(1, abs=1e-3)


def test_a_finished_study_trains_nothing_again(finished, tmp_path, monkeypatch):
    folder = copied(finished, tmp_path)
    before = (folder / "trials.jsonl").read_bytes()
    monkeypatch.setattr("regard.tuning.halving.train_to", lambda *given: pytest.fail("trained"))
    result = regard("tune", "--run", folder, "--resume", "--trials", 5, "--json")
    assert facts_without_time(json.loads(result.out)) == facts_without_time(finished[1])
    assert (folder / "trials.jsonl").read_bytes() == before


def live(words, folder, steps):
    """A life of a study in a child, killed once so many of its lines are noted and a checkpoint more is being written."""
    child = os.fork()
    if child == 0:
        sys.stderr = sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        os._exit(regard(*words).code)
    path = folder / "trials.jsonl"
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if path.exists() and len(path.read_bytes().splitlines()) >= steps:
            time.sleep(0.1)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return False
        time.sleep(0.005)
    return True


def test_a_killed_study_goes_on_to_the_same_end(finished, table, tiny, tmp_path):
    folder = tmp_path / "study"
    words = ["tune", table, "--recipe", tiny, "--trials", 5, "--run", folder, "--json"]
    assert not live(words, folder, 2)
    assert not live([*words, "--resume"], folder, 8)
    result = regard(*words, "--resume")
    assert result.code == 0, result.err
    assert facts_without_time(json.loads(result.out)) == facts_without_time(finished[1])
    for one in (finished[0], folder):
        Checkpoints(one / "trials" / "000" / "checkpoints", pytest.fail).latest()
    weights = [(one / "model" / "model.safetensors").read_bytes() for one in (finished[0], folder)]
    assert weights[0] == weights[1]


def test_ctrl_c_says_how_to_go_on(table, tiny, tmp_path, monkeypatch):
    folder = tmp_path / "study"
    monkeypatch.setattr("regard.tuning.runs.run.train", lambda *given, **named: signal.SIGINT)
    result = regard("tune", table, "--recipe", tiny, "--trials", 2, "--run", folder, "--quiet")
    assert (result.code, result.out) == (130, "")
    assert f"regard tune --run {folder} --resume" in result.err


def test_more_trials_can_follow(finished, tmp_path):
    folder = copied(finished, tmp_path)
    result = regard("tune", "--run", folder, "--resume", "--trials", 6, "--json")
    facts = json.loads(result.out)
    assert len(facts["trials"]) == 6
    assert {trial["trial"]: trial["values"] for trial in facts["trials"] if trial["trial"] < 5} == {
        trial["trial"]: trial["values"] for trial in finished[1]["trials"]
    }


def test_the_time_is_up_and_can_be_given_again(table, tiny, tmp_path):
    folder = tmp_path / "study"
    files = Files({"pairs": str(table)}, {}, {})
    changes = {"training.updates": 100000, "training.validate_every": 2, "training.save_every": 500}
    facts = study.tune(files, str(tiny), changes, folder, False, Limits(0.02), talk=False)
    assert facts["ending"] == "the time is up (0.02 minutes)"
    (only,) = facts["trials"]
    assert 0 < only["step"] < 100000
    assert not only["ended"]
    assert read(folder / "recipe.yaml").training.updates == 100000
    assert regard("generate", folder, "--beam", 1, stdin=b"canis\n").code == 0
    study.tune(files, str(tiny), changes, folder, True, Limits(only["seconds"] / 60 + 0.01), talk=False)
    assert json.loads((folder / "tune.json").read_text())["trials"][0]["step"] > only["step"]


def test_a_test_set_is_never_read(table, tiny, tmp_path):
    """There is none where the recipe says it is: whoever looks at it fails."""
    recipe, secret = tmp_path / "with_test.yaml", tmp_path / "not_there.tsv"
    files = f"  train: {{pairs: {table}}}\n  test: {{secret: {{pairs: {secret}}}}}\n"
    recipe.write_text(tiny.read_text().replace("data:\n", f"data:\n{files}"))
    folder = tmp_path / "study"
    result = regard("tune", "--recipe", recipe, "--run", folder, "--trials", 2, "training.updates=2", "--quiet")
    assert (result.code, result.err) == (0, "")
    assert read(folder / "recipe.yaml").data.test["secret"].pairs == secret  # for who trains it again
    assert read(folder / "trials" / "000" / "recipe.yaml").data.test == {}
    assert str(secret) in refused("evaluate", folder)


def test_rows_to_validate_on_can_be_given(table, tiny, tmp_path):
    valid = write_table(tmp_path / "valid.tsv", rows=6, seed=3)
    words = ["--recipe", tiny, "--valid-pairs", valid, "--trials", 1, "--run", tmp_path / "study", "training.updates=2"]
    facts = json.loads(regard("tune", "--pairs", table, *words, "--json", "--quiet").out)
    assert facts["importance"] == {}
    assert len(facts["trials"]) == 1
    assert read(tmp_path / "study" / "recipe.yaml").data.valid.pairs == valid


def test_without_a_recipe_one_is_chosen(table, tmp_path):
    words = ["--trials", 1, "--run", tmp_path / "study", "training.updates=2", "model.encoder.hidden_size=16"]
    result = regard("tune", table, *words, "--json")
    assert result.code == 0, result.err
    assert "chosen (an override KEY=VALUE chooses otherwise)" in result.err
    facts = json.loads(result.out)
    assert {"dropout", "learning rate"} <= facts["space"].keys()
    assert not {"family", "size", "batch", "vocabulary"} & facts["space"].keys()  # fixed, or of no use here


def test_a_search_that_has_too_little_time_says_so(table, tiny, tmp_path, monkeypatch):
    """The chosen recipe fitted to a share of the time keeps too few of its updates."""
    monkeypatch.setattr("regard.planning.minutes.updates_in", lambda minutes, recipe: 1000 if minutes > 1 else 200)
    monkeypatch.setattr("regard.planning.minutes.halved", lambda recipe: None)
    files = Files({"pairs": str(table)}, {}, {})
    told = []
    monkeypatch.setattr(study.Display, "say", lambda self, text: told.append(text))
    found = {minutes: study.drafted_recipe(files, None, (), Limits(minutes), True) for minutes in (2, 8)}
    assert found[2].training.updates == 200 < found[8].training.updates
    assert sum("few for a search" in text for text in told) == 1
    assert any("`regard train --minutes 2`" in text for text in told)


def test_from_python(tiny, tmp_path):
    pairs = [("canis domus", "CANIS DOMUS"), ("domus", "DOMUS"), ("canis", "CANIS")] * 4
    model = package.tune(pairs, {"training.updates": 2}, recipe=tiny, trials=1, run=tmp_path / "study", talk=False)
    assert isinstance(model.generate("canis"), str)
    assert (tmp_path / "study" / "spooled").is_dir()
    assert package.load(tmp_path / "study").generate("canis") == model.generate("canis")
    with pytest.raises(package.Error, match="other text"):
        package.tune(pairs[1:], run=tmp_path / "study", resume=True, trials=1, talk=False)
    with pytest.raises(TypeError, match="minutes is a number"):
        package.tune(pairs, minutes="3")


def test_no_optuna(monkeypatch, table, tmp_path):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert 'pip install "regard[tune]"' in refused("tune", table, "--run", tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_no_matplotlib_costs_the_picture_only(finished, tmp_path, monkeypatch):
    folder = copied(finished, tmp_path)
    (folder / "tune.png").unlink()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = regard("tune", "--run", folder, "--resume", "--trials", 5)
    assert result.code == 0
    assert "regard[figures]" in result.err
    assert not (folder / "tune.png").exists()


def test_data_that_is_not_there(tmp_path):
    assert "tune on what?" in refused("tune", "--run", tmp_path / "study")
    assert "nothing.tsv" in refused("tune", tmp_path / "nothing.tsv", "--run", tmp_path / "study")
    assert "not 3 files" in refused("tune", "a", "b", "c", "--run", tmp_path / "study")
    assert "name the data once" in refused("tune", "a", "--pairs", "b", "--run", tmp_path / "study")
    assert "--run is empty" in refused("tune", "a", "--run", " ")
    assert not (tmp_path / "study").exists()


def test_folders_of_others_are_left_alone(table, tiny, finished, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    assert "no study and it is not empty (it holds thesis.tex)" in refused("tune", table, "--run", tmp_path / "mine")
    assert "no study to continue" in refused("tune", "--run", tmp_path / "new", "--resume")
    run = Path(finished[1]["best"]["run"])
    assert "no study and it is not empty" in refused("tune", table, "--run", run)
    assert "there is a study already" in refused("tune", table, "--run", finished[0])
    folder = copied(finished, tmp_path)
    shutil.rmtree(folder / "model")
    (folder / "model").mkdir()
    (folder / "model" / "mine.txt").write_text("mine")
    assert "regard did not write this" in refused("tune", "--run", folder, "--resume", "--trials", 5)
    assert (folder / "model" / "mine.txt").read_text() == "mine"


def test_a_study_goes_on_with_what_it_began_with(finished, table, tiny, tmp_path):
    folder = copied(finished, tmp_path)
    other = write_table(tmp_path / "other.tsv", seed=2)
    words = ["--run", folder, "--resume", "--trials", 5]
    assert "other training data" in refused("tune", other, *words)
    assert "other validation data" in refused("tune", "--valid-pairs", other, *words)
    assert "no overrides" in refused("tune", table, *words, "training.updates=12")
    assert f"the recipe {tiny}" in refused("tune", table, "--recipe", "demo", *words)
    study = json.loads((folder / "study.json").read_text())
    moved = {**study, "digests": {str(other): "0" * 64}}
    (folder / "study.json").write_text(json.dumps(moved))
    assert "has changed since the study" in refused("tune", *words)
    (folder / "study.json").write_text("{}")
    assert "damaged" in refused("tune", *words)


def test_torchrun_is_refused(table, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "works in one process" in refused("tune", table)


def test_the_next_values_are_a_function_of_the_trials():
    space = {"size": [0.5, 1.0, 2.0], "dropout": [0.1, 0.2, 0.3]}
    found = [Trial(0, 0, {"size": 1.0, "dropout": 0.2})]
    while (values := proposals.propose(space, found, Ranking(True), 1)) is not None:
        assert proposals.propose(space, found, Ranking(True), 1) == values
        found.append(Trial(len(found), 1, values))
    assert len({tuple(trial.values.values()) for trial in found}) == len(found) == 9  # each once
