"""Runs that end in time: against a simulated clock, and the same bytes where the same was decided."""

import itertools
import os
import re
import signal
import time
from typing import ClassVar
from unittest.mock import Mock

import pytest
from small import digests, small_recipe

import regard
from regard import run
from regard.cli import train as command
from regard.recipe import Decoding
from regard.training import loop, timekeeping
from regard.training.callbacks import Callbacks
from regard.training.checkpoint import Progress
from regard.training.display import Display
from regard.training.distributed import Group
from regard.training.journal import read_journal
from regard.training.pacing import Pace, Pacing, Timing, pace_of
from regard.training.schedules import SCHEDULES


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def simulated(minutes, updates, every, seconds, validation, began=0.0):
    """Step n takes seconds(n): the updates that are made, the seconds until scores are due, the decisions, the validations."""
    clock, pace, decisions, validations = Clock(), pace_of(updates, None), [], 0
    clock.now = 100.0 + began
    pacing, step = Pacing(minutes, every, 100.0, clock=clock), 0
    pacing.timing.last = clock.now
    while step < pace.updates:
        step += 1
        clock.now += seconds(step)
        pacing.timing.updated()
        found = pacing.decide(step, pace)
        if found != pace:
            decisions.append((step, found.updates))
            pace = found
        if step == pace.updates or (step % every == 0 and pacing.affords()):
            clock.now += validation
            validations += 1
            pacing.timing.validated()
    return step, clock.now + validation - 100.0, decisions, validations


@pytest.mark.parametrize(
    ("seconds", "validation", "least"),
    [
        (lambda step: 0.2, 0.5, 430),  # as was expected
        (lambda step: 1.0, 0.5, 80),  # five times as slow as was expected
        (lambda step: 0.2 if step < 200 else 2.0, 0.5, 210),  # another program comes
        (lambda step: 2.0 if 50 < step < 70 else 0.2, 0.5, 250),  # and goes
        (lambda step: 0.2, 6.0, 250),  # validations that take thirty updates
        (lambda step: 0.1 + 0.2 * (step % 3), 1.0, 200),
        (lambda step: 5.0 if step == 1 else 0.15, 0.1, 480),
    ],
)
def test_a_run_ends_in_time(seconds, validation, least):
    updates, took, decisions, validations = simulated(2, 480, 30, seconds, validation, began=10.0)
    assert took <= 120
    assert updates >= least
    assert len(decisions) <= 25
    assert (validations - 1) * validation <= 0.25 * took + validation


def test_nothing_is_decided_where_there_is_time():
    assert simulated(60, 480, 30, lambda step: 0.2, 0.5)[2] == []


def test_what_was_taken_away_comes_back():
    """A hundred slow updates in the middle; never more updates than the recipe's."""
    counts = [updates for _, updates in simulated(4, 600, 50, lambda step: 1.0 if 20 < step < 60 else 0.2, 0.5)[2]]
    assert min(counts) < 300
    assert counts[-1] > 500
    assert max(counts) <= 600


def test_too_few_updates_are_made_all_the_same():
    assert simulated(1, 400, 50, lambda step: 30.0, 1.0)[0] == 20


@pytest.mark.parametrize("name", ["cosine", "linear", "constant"])
def test_the_rate_goes_on_where_it_was_and_ends_where_it_would(name):
    pace, steps = pace_of(1000, None), list(range(1, 1001))
    for since, updates in ((30, 600), (200, 300), (250, 400)):  # the first of them in the warm-up
        pace = Pace(since, pace.place(since), updates, 1000)
        steps = [*steps[:since], *(pace.place(step) for step in range(since + 1, updates + 1))]
    assert len(steps) == 400
    rates = [SCHEDULES[name](step, 100, 1000) for step in steps]
    assert steps[-1] == pytest.approx(1000)
    assert rates[-1] == pytest.approx(SCHEDULES[name](1000, 100, 1000))
    assert max(abs(a - b) for a, b in itertools.pairwise(rates)) < 0.04  # 800 steps of the recipe in 100 updates, at the most


class Scripted(Pacing):
    """Decides as the test says, not as the clock does."""

    script: ClassVar = {4: 20, 12: 16}
    spent = 7.0

    def decide(self, step, pace):
        updates = self.script.get(step)
        return pace if updates is None else Pace(step, pace.place(step), updates, pace.recipe)

    def affords(self):
        return True


@pytest.fixture
def scripted(monkeypatch):
    monkeypatch.setattr(timekeeping, "Pacing", Scripted)
    return small_recipe(30, "training.minutes=5", "training.schedule=cosine", "training.validate_every=8")


def test_decisions_are_journalled_and_followed(scripted, tmp_path):
    run.train(scripted, tmp_path / "run", talk=False)
    rows = read_journal(tmp_path / "run" / "journal.jsonl")
    assert [(row["step"], row["updates"]) for row in rows if "updates" in row] == [(4, 20), (12, 16)]
    rates = {row["step"]: row["lr"] for row in rows if "lr" in row}
    assert max(rates) == 15
    at = 4 + (12 - 4) * (30 - 4) / (20 - 4)  # of 30
    places = {3: 3, 6: 4 + 2 * 26 / 16, 12: at, 15: at + 3 * (30 - at) / 4}
    training = scripted.training
    expected = {
        step: training.learning_rate * SCHEDULES["cosine"](place, training.warmup, 30) for step, place in places.items()
    }
    assert {step: rates[step] for step in places} == pytest.approx(expected)
    assert [row["step"] for row in rows if "valid_loss" in row] == [8, 16]


def interrupted_after(step, monkeypatch):
    original = loop.Trainer.update

    def update(self, progress):
        original(self, progress)
        if progress.step == step:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(loop.Trainer, "update", update)


@pytest.mark.parametrize("step", [3, 4, 9, 14])
def test_resumed_with_the_same_decisions_it_ends_with_the_same_bytes(step, scripted, tmp_path, monkeypatch):
    run.train(scripted, tmp_path / "calm", talk=False)
    with monkeypatch.context() as patch:
        interrupted_after(step, patch)
        assert run.train(scripted, tmp_path / "run", talk=False) == signal.SIGTERM
    if step == 9:  # the journal of the checkpoint holds the first decision; later ones are taken anew
        monkeypatch.setattr(Scripted, "script", {12: 16})
    run.train(scripted, tmp_path / "run", resume=True, talk=False)
    assert digests(tmp_path / "run") == digests(tmp_path / "calm")


@pytest.mark.parametrize(("change", "last"), [({"updates": 34}, 34), ({"minutes": 9.0}, 30), ({"minutes": None}, 30)])
def test_other_updates_or_minutes_in_the_recipe_are_counted_anew(change, last, scripted, tmp_path, monkeypatch):
    """Of a run that ended after 16 updates, for its time was up."""
    run.train(scripted, tmp_path / "run", talk=False)
    monkeypatch.setattr(Scripted, "script", {})
    longer = scripted.model_copy(update={"training": scripted.training.model_copy(update=change)})
    run.train(longer, tmp_path / "run", resume=True, talk=False)
    assert max((tmp_path / "run" / "checkpoints").glob("step-*")).name == f"step-{last:09d}"
    rates = {row["step"]: row["lr"] for row in read_journal(tmp_path / "run" / "journal.jsonl") if "lr" in row}
    training = longer.training
    assert rates[last - last % 3] == training.learning_rate * SCHEDULES["cosine"](last - last % 3, training.warmup, last)


def test_the_time_of_a_run_is_that_of_all_its_parts(scripted, tmp_path, monkeypatch):
    given = []

    def made(minutes, every, began, spent, further):
        given.append((began, spent))
        return Scripted(minutes, every, began, spent, further)

    monkeypatch.setattr(timekeeping, "Pacing", made)
    with monkeypatch.context() as patch:
        interrupted_after(9, patch)
        run.train(scripted, tmp_path / "run", talk=False, callbacks=Callbacks(began=5.0))
    run.train(scripted, tmp_path / "run", resume=True, talk=False, callbacks=Callbacks(began=6.0))
    assert given == [(5.0, 0.0), (6.0, Scripted.spent)]
    assert Pacing(1, 10, 90.0, spent=30.0, clock=Clock()).spent == 40.0


def test_what_the_first_process_decides_holds_for_all():
    """Their clocks are not alike."""
    decided, display, noted = Pace(5, 5.0, 9, 30), Mock(spec=Display), Mock()
    group = Mock(spec=Group, share=Mock(side_effect=[decided, False, True]))
    training = small_recipe(30, "training.minutes=5").training
    keeper = timekeeping.Timekeeper(training, group, Progress(5), None, display, noted)
    keeper.updated()
    assert (keeper.progress.pace, keeper.updates) == (decided, 9)
    noted.assert_called_once_with(step=5, updates=9)
    display.paced.assert_called_once_with(5, 30, 9, 300)
    assert [keeper.affords(), keeper.affords()] == [False, True]


@pytest.mark.parametrize("way", [command.train, regard.train])
def test_minutes_begin_with_the_program(way, tmp_path, monkeypatch):
    """Reading and choosing are a part of them."""

    class Begun(Exception):
        pass

    def begun(*given, **named):
        (callbacks,) = (one for one in (*given, *named.values()) if isinstance(one, Callbacks))
        raise Begun(callbacks.began)

    monkeypatch.setattr(run, "train", begun)
    before = time.monotonic()
    with pytest.raises(Begun) as found:
        way("demo", run=str(tmp_path / "run"))
    assert before <= found.value.args[0] <= time.monotonic()


def test_what_was_scored_is_said_where_the_time_was_up(scripted, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Scripted, "share", lambda self, rows, validated: 3)
    run.train(scripted, tmp_path / "run")
    assert re.search(r"on the first 3 of \d+ rows \(the time is up; `regard evaluate` scores all\)", capsys.readouterr().err)
    assert len((tmp_path / "run" / "worst.tsv").read_text().splitlines()) == 1 + 3


def test_the_first_rows_alone_are_validated_on(tmp_path, monkeypatch):
    asked, measure = [], run.measure

    def measured(question, names):
        asked.append(len(question.pairs))
        return measure(question, names)

    monkeypatch.setattr(run, "measure", measured)
    run.train(small_recipe(4, "training.validate_rows=7"), tmp_path / "run", talk=False)
    assert set(asked) == {7}


def test_what_is_known_of_the_rows_is_that_of_the_first_too():
    valid = run.Validation("loss", ["a", "b", "c"], [{1}, {2}, {3}], [[4], [5], [6]])
    for most, rows in ((2, 2), (None, 3), (7, 3)):
        asked = valid.question(None, Decoding(), most)
        assert (asked.pairs, asked.gold, asked.boxes) == tuple(side[:rows] for side in valid[1:])


def test_the_time_that_was_told_is_mended_where_it_was_wrong(capsys):
    """Two updates a second, then one in four seconds: 50 s were said, and 380 remain."""
    clock = Clock()
    timing, display = Timing(clock), Display(100, 0, None, True)
    display.told_at = clock.now - 10
    for step in range(1, 41):
        clock.now += 0.5 if step <= 30 else 4.0
        timing.updated()
        display.tell_time(step, timing, 50, 2)
    told = [line for line in capsys.readouterr().err.splitlines() if "updates to go" in line]
    assert told[0] == "86 updates to go: about 43 s; a first model after 18 s"
    assert len(told) >= 2
    assert "not " in told[1]
    assert "as it seemed" in told[1]


@pytest.mark.parametrize("first", [None, 3, 10])
@pytest.mark.parametrize("updates", [7, 40, 41])
def test_validations_to_come_are_those_that_are_made(updates, first):
    training = small_recipe(updates, "training.validate_every=10").training.model_copy(update={"validate_first": first})
    for step in range(updates):
        made = [at for at in range(step + 1, updates + 1) if at % 10 == 0 or at in (first, updates)]
        keeper = timekeeping.Timekeeper(training, Mock(spec=Group), Progress(step), None, Mock(spec=Display), Mock())
        assert keeper.validations() == (made[0], len(made))


def test_rows_are_scored_as_the_rest_of_the_time_allows():
    clock = Clock()
    pacing = Pacing(1, 10, 100.0, clock=clock)
    clock.now += 40
    pacing.timing.last = clock.now - 2
    pacing.timing.validated()  # 2 s for 100 rows, 6 with a beam; 20 s are left
    assert [pacing.share(rows, 100) for rows in (100, 300, 1000)] == [100, 300, 333]
    clock.now += 30
    assert [pacing.share(rows, 100) for rows in (30, 300)] == [30, 50]
