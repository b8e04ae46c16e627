"""Rungs, halving and the journal: with trials that are trained, and with trials whose scores are made up."""

import hashlib
import json
import math

import pytest
from studies import recipe_of

from regard import run
from regard.errors import DamagedError
from regard.evaluation.metrics import METRICS
from regard.recipe import Training
from regard.tuning import halving
from regard.tuning.halving import Limits, OutOfTimeError, Search, number_of_rungs, rung_steps
from regard.tuning.outcome import leave
from regard.tuning.runs import conclude, progress_of, train_to
from regard.tuning.space import Point, searched
from regard.tuning.trials import Reached, Trials


def bytes_of(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_rungs_are_validations():
    assert rung_steps(Training(updates=1600, validate_every=100), 3) == [200, 500, 1600]
    assert rung_steps(Training(updates=90, validate_every=10), 3) == [10, 30, 90]
    assert rung_steps(Training(updates=95, validate_every=40), 2) == [40, 95]
    assert [number_of_rungs(Training(updates=updates, validate_every=10)) for updates in (5, 20, 30, 80, 90, 900)] == [
        1, 1, 2, 2, 3, 3,
    ]  # fmt: skip


def test_a_trial_in_rungs_is_the_trial_trained_through(tiny_values, tmp_path):
    recipe = recipe_of(tiny_values, "training.save_every=4")
    run.train(recipe, tmp_path / "through", talk=False)
    for step in rung_steps(recipe.training, 3):
        assert not (tmp_path / "rungs" / "model").exists()
        assert train_to(recipe, tmp_path / "rungs", step).step == step
    for part in ("model", "best", "checkpoints/step-000000009"):
        assert bytes_of(tmp_path / "rungs" / part) == bytes_of(tmp_path / "through" / part)
    assert (tmp_path / "rungs" / "journal.jsonl").read_bytes() == (tmp_path / "through" / "journal.jsonl").read_bytes()


def test_a_trial_is_left_when_the_time_is_up(tiny_values, tmp_path):
    recipe = recipe_of(tiny_values)
    assert train_to(recipe, tmp_path / "run", 9, deadline=-math.inf).step == 0
    assert train_to(recipe, tmp_path / "run", 3).step == 3


def test_a_trial_that_was_concluded_goes_on_as_if_it_had_not_been(tiny_values, tmp_path):
    recipe = recipe_of(tiny_values)
    train_to(recipe, tmp_path / "one", 3)
    model = conclude(recipe, tmp_path / "one")
    early = bytes_of(model)
    assert (progress_of(tmp_path / "one").step, early["config.json"]) == (3, early["config.json"])
    train_to(recipe, tmp_path / "one", 9)
    run.train(recipe, tmp_path / "through", talk=False)
    assert bytes_of(model) == bytes_of(tmp_path / "through" / "model")
    assert bytes_of(model)["model.safetensors"] != early["model.safetensors"]
    assert conclude(recipe, tmp_path / "one") == model


class Pretended:
    """Trials that are not trained: their score is a function of their values, and falls with the steps."""

    def __init__(self, monkeypatch, seconds=1.0):
        self.trained, self.seconds, self.dies_after = [], seconds, math.inf
        monkeypatch.setattr(halving, "train_to", self.train_to)
        monkeypatch.setattr(halving, "standing", self.standing)

    def train_to(self, recipe, directory, step, deadline):
        if len(self.trained) >= self.dies_after:
            raise KeyboardInterrupt
        self.trained.append((directory.name, step))
        self.state = type("State", (), {"step": step, "finished": False})
        return self.state

    def standing(self, recipe, directory, rung, seconds):
        score = 50 + 20 * abs(math.log(recipe.training.learning_rate / 0.02)) + recipe.model["encoder"]["dropout"]
        step = self.state.step
        return Reached(rung, step, round(score / step, 6), 1.0, self.seconds, 10, step >= recipe.training.updates)


@pytest.fixture(scope="module")
def space(tiny_values):
    return searched(Point(tiny_values, named=True), ["data.batch_tokens"])


@pytest.fixture
def searching(tiny_values, space):
    """Makes a search in a folder, new or begun."""
    opened = []

    def search(folder, trials=None, minutes=60.0, space=space):
        folder.mkdir(exist_ok=True)
        opened.append(Trials(folder / "trials.jsonl"))
        return Search(folder, Point(tiny_values, named=True), space, opened[-1], Limits(minutes, trials), lambda text: None)

    yield search
    for trials in opened:
        trials.journal.close()


def test_halving_keeps_the_best(searching, tmp_path, monkeypatch):
    pretended = Pretended(monkeypatch)
    search = searching(tmp_path / "study", trials=10)
    search.all_waves()
    assert pretended.trained[:3] == [("000", 1), ("000", 3), ("000", 9)]
    assert pretended.trained[3:12] == [(f"{number:03d}", 1) for number in range(1, 10)]
    at_first = sorted(search.trials.all, key=lambda trial: (trial.at(1).score, trial.number))
    kept = [trial.number for trial in at_first[:3] if trial.number]  # a third of the nine and the chosen one
    assert search.trials.kept[1, 1] == kept
    assert pretended.trained[12 : 12 + len(kept)] == [(f"{number:03d}", 3) for number in kept]
    assert search.trials.kept[1, 2] == [number for number in kept[:1] if at_first[0].number]
    best = search.ranking.so_far(search.trials.all)[0]
    assert best.number == at_first[0].number
    assert best.last.ended
    assert [trial.values for trial in search.trials.all].count(best.values) == 1


def test_equal_scores_are_told_apart_by_the_loss(searching, tmp_path):
    search = searching(tmp_path / "study")
    trials = [search.trials.propose(1, {"dropout": number}) for number in range(4)]
    for trial, (score, loss) in zip(trials, [(2.0, 1.0), (1.0, 3.0), (1.0, 2.0), (None, 0.0)], strict=True):
        search.trials.note(trial=trial.number, **Reached(1, 1, score, loss, 1.0, 1, False)._asdict())
    assert [trial.number for trial in search.ranking.at(1, trials)] == [2, 1, 0, 3]
    assert not METRICS["wer"].higher_is_better
    assert [trial.number for trial in search.ranking._replace(higher_is_better=True).at(1, trials)] == [0, 2, 1, 3]


def test_a_search_that_died_anywhere_goes_on_to_the_same_end(searching, tmp_path, monkeypatch):
    pretended = Pretended(monkeypatch)
    searching(tmp_path / "whole", trials=12).all_waves()
    whole, trained = (tmp_path / "whole" / "trials.jsonl").read_bytes(), len(pretended.trained)
    assert b'"wave": 2' in whole
    for deaths in range(0, trained, 2):  # in the training of a trial
        pretended.trained, pretended.dies_after = [], deaths
        with pytest.raises(KeyboardInterrupt):
            searching(tmp_path / f"died-{deaths}", trials=12).all_waves()
        pretended.dies_after = math.inf
        searching(tmp_path / f"died-{deaths}", trials=12).all_waves()
        assert (tmp_path / f"died-{deaths}" / "trials.jsonl").read_bytes() == whole
        assert len(pretended.trained) == trained  # and nothing that was noted was trained again
    lines = whole.splitlines(keepends=True)
    for cut in range(1, len(lines), 7):  # in the middle of a line
        folder = tmp_path / f"cut-{cut}"
        folder.mkdir()
        (folder / "trials.jsonl").write_bytes(b"".join(lines[:cut]) + lines[cut][:7])
        searching(folder, trials=12).all_waves()
        assert (folder / "trials.jsonl").read_bytes() == whole


class Clock:
    """It goes on by the seconds that trials are said to take, and by nothing else."""

    def __init__(self, pretended):
        self.pretended = pretended

    def monotonic(self):
        return self.pretended.seconds * len(self.pretended.trained)


def test_the_number_of_trials_is_fitted_to_the_time(searching, tmp_path, monkeypatch):
    """A rung takes a second here, and so a trial that goes to its end three: more time, more trials, and never too many."""
    numbers = []
    for seconds in (3, 6, 20, 60):
        pretended = Pretended(monkeypatch)
        monkeypatch.setattr(halving, "time", Clock(pretended))
        search = searching(tmp_path / f"study-{seconds}", minutes=seconds / 60)
        search.all_waves()
        assert len(pretended.trained) <= seconds
        numbers.append(len(search.trials.all))
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[1]) == (1, 2)
    assert numbers[-1] > 20


def test_no_trial_is_begun_when_the_time_is_up(searching, tmp_path):
    search = searching(tmp_path / "study")
    search.deadline = -math.inf
    with pytest.raises(OutOfTimeError):
        search.all_waves()
    assert [(trial.number, trial.reached) for trial in search.trials.all] == [(0, [])]
    with pytest.raises(halving.UserError, match=r"no trial came to a validation .* --resume --minutes 120"):
        leave(search, "the time is up")


def test_the_time_is_up_in_the_middle_of_a_trial(searching, tmp_path, monkeypatch):
    """Time for the first two steps: the trial is saved between two rungs, and a search with more time goes on from there."""
    train_to = halving.train_to
    monkeypatch.setattr(
        halving, "train_to", lambda recipe, directory, step, deadline: train_to(recipe, directory, min(step, 2))
    )
    search = searching(tmp_path / "study", trials=1)
    with pytest.raises(OutOfTimeError):
        search.all_waves()
    assert [(one.rung, one.step) for one in search.trials.all[0].reached] == [(1, 1), (0, 2)]
    monkeypatch.setattr(halving, "train_to", train_to)
    search = searching(tmp_path / "study", trials=1)
    search.all_waves()
    assert [(one.rung, one.step) for one in search.trials.all[0].reached] == [(1, 1), (0, 2), (2, 3), (3, 9)]


def test_a_space_that_is_exhausted_ends_the_search(searching, tmp_path, monkeypatch):
    Pretended(monkeypatch)
    search = searching(tmp_path / "study", trials=50, space={"dropout": [0.1, 0.2], "layers": [0, 1]})
    search.all_waves()
    found = [tuple(trial.values.values()) for trial in search.trials.all]
    assert sorted(found) == [(0.1, 0), (0.1, 1), (0.2, 0), (0.2, 1)]
    assert found[0] == (0.2, 0)


def test_trials_that_cannot_be_trained_are_told_and_left(searching, tmp_path, monkeypatch):
    pretended, told = Pretended(monkeypatch), []

    def fails(recipe, directory, step, deadline):
        if directory.name == "002":
            raise halving.UserError("step 1: the loss was not finite\nand more")
        return Pretended.train_to(pretended, recipe, directory, step, deadline)

    monkeypatch.setattr(halving, "train_to", fails)
    search = searching(tmp_path / "study", trials=4)
    search.say = told.append
    search.all_waves()
    assert search.trials.all[2].failed == "step 1: the loss was not finite"
    assert search.ranking.so_far(search.trials.all)[-1].number == 2
    assert any("trial 2 cannot be trained" in line for line in told)
    assert 2 not in search.trials.kept[1, 1]


def test_a_damaged_journal_is_named(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_text(json.dumps({"trial": 3, "rung": 1}) + "\n")
    with pytest.raises(DamagedError, match="line 1 is no row"):
        Trials(path)
