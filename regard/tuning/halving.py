"""Successive halving: many trials trained a little, the best third of them further, the best of these to the end.

Every trial is a run of its own, trained with the schedule of its full length and paused at rungs; so one that was paused and
resumed is, byte for byte, one that was trained through. Waves of trials follow each other until the time or the number of
trials is spent. All decisions are functions of the journal, so a search that was killed goes on as if it had not been.
"""

import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from regard import run
from regard.errors import UserError
from regard.evaluation.metrics import METRICS
from regard.memory import is_shortage
from regard.recipe import Training
from regard.training.display import spoken
from regard.tuning.proposals import Space, propose
from regard.tuning.runs import standing, train_to
from regard.tuning.space import SPACE, Point, changed
from regard.tuning.telling import told_score, told_values
from regard.tuning.trials import Ranking, Trial, Trials

THIRD = 3  # one of so many goes on
RUNGS = 3  # at most

Say = Callable[[str], None]


class OutOfTimeError(Exception):
    """The search ends here; what is half trained can be resumed."""


def number_of_rungs(training: Training) -> int:
    """A rung is worth it where the first has a validation of its own."""
    return max(rungs for rungs in range(1, RUNGS + 1) if THIRD ** (rungs - 1) <= validations(training))


def validations(training: Training) -> int:
    return math.ceil(training.updates / training.validate_every)


def rung_steps(training: Training, rungs: int) -> list[int]:
    """Where a trial is paused: after a ninth, a third, and all of its validations."""
    shares = (validations(training) / THIRD**back for back in range(rungs - 1, 0, -1))
    return [*(max(round(share), 1) * training.validate_every for share in shares), training.updates]


class Limits(NamedTuple):
    """When to stop."""

    minutes: float
    trials: int | None = None  # with the chosen one


class Search:
    """One study: its space, its journal, its clock. `all_waves` is the search; the rest are its sentences."""

    def __init__(self, directory: Path, point: Point, space: Space, trials: Trials, limits: Limits, say: Say) -> None:
        self.directory, self.point, self.space, self.trials, self.limits, self.say = (
            directory,
            point,
            space,
            trials,
            limits,
            say,
        )
        self.chosen = changed(point, {})
        self.metric = run.metric_of(self.chosen)
        self.ranking = Ranking(METRICS[self.metric].higher_is_better)
        self.rungs = number_of_rungs(self.chosen.training)
        self.wave_size = THIRD ** (self.rungs - 1)
        self.deadline = time.monotonic() + 60 * limits.minutes - trials.seconds

    def all_waves(self) -> None:
        """The chosen recipe to its end, then waves around it, until nothing more fits."""
        if not self.trials.all:
            self.trials.propose(0, {name: SPACE[name].chosen(self.point) for name in self.space})
        for rung in range(1, self.rungs + 1):
            self.advance(self.trials.all[0], rung)
        wave = 1
        while self.wave(wave):
            wave += 1

    def wave(self, wave: int) -> bool:
        """Fill it, and halve it at every rung; False if there was nothing to fill it with."""
        field = self.fill(wave)
        for rung in range(1, self.rungs + 1) if field else ():
            field = self.keep(wave, rung, field)
            for trial in field if rung < self.rungs else ():
                self.advance(trial, rung + 1)
        return bool(self.trials.of(wave))

    def fill(self, wave: int) -> list[Trial]:
        """New trials at the first rung, as many as a wave has or as fit; those that were begun are finished first."""
        while (wave, 1) not in self.trials.kept:
            begun = next((one for one in self.trials.of(wave) if one.at(1) is None and not one.failed), None)
            if begun is None and (values := self.another(wave)) is not None:
                begun = self.trials.propose(wave, values)
            if begun is None:
                break
            self.advance(begun, 1)
        return self.trials.of(wave)

    def another(self, wave: int) -> dict[str, Any] | None:
        """Values for one more trial, if this wave, the number of trials and the time have room for it."""
        begun, most = self.trials.of(wave), self.limits.trials
        if len(begun) == self.wave_size or (most is not None and len(self.trials.all) >= most):
            return None
        if most is None and self.cost(begun) > self.deadline - time.monotonic():
            return None
        return propose(self.space, self.trials.all, self.ranking, self.chosen.training.seed)

    def cost(self, begun: list[Trial]) -> float:
        """Seconds that a wave of one more trial still takes: measured on trial 0, and on what has been trained of this wave."""
        chosen = [one.seconds for one in self.trials.all[0].reached if one.rung]
        share = rung_steps(self.chosen.training, self.rungs)[0] / self.chosen.training.updates
        first = [one.reached[0].seconds for one in begun if one.reached]
        slower = statistics.median(first) / max(share * sum(chosen), chosen[0]) if first else 1.0
        going_on: list[int] = [max((len(begun) + 2) // THIRD**rung, 1) for rung in range(1, len(chosen))]
        return slower * (chosen[0] + sum(number * seconds for number, seconds in zip(going_on, chosen[1:], strict=True)))

    def keep(self, wave: int, rung: int, field: list[Trial]) -> list[Trial]:
        """The best third of these and the chosen one, which is trained already and only takes its place."""
        if (wave, rung) not in self.trials.kept:
            ranked = self.ranking.at(rung, [self.trials.all[0], *field])
            going_on = [trial.number for trial in ranked[: max(len(ranked) // THIRD, 1)] if trial.number]
            self.trials.note(wave=wave, rung=rung, kept=going_on)
        return [self.trials.all[number] for number in self.trials.kept[wave, rung]]

    def advance(self, trial: Trial, rung: int) -> None:
        """Train to a rung, from the trial's own checkpoint, and note how it stands there."""
        if trial.failed or trial.at(rung) is not None:
            return
        if time.monotonic() >= self.deadline:
            raise OutOfTimeError
        recipe, started = changed(self.point, trial.values), time.monotonic()
        step = rung_steps(recipe.training, self.rungs)[rung - 1]
        try:
            state = train_to(recipe, self.place(trial), step, self.deadline)
        except (UserError, RuntimeError, MemoryError) as error:
            if trial.number == 0 or not (isinstance(error, UserError) or is_shortage(error)):
                raise
            self.trials.note(trial=trial.number, failed=str(error).splitlines()[0][:300])
            self.say(f"trial {trial.number} cannot be trained: {trial.failed}")
            return
        there = state.finished or state.step >= step
        found = standing(recipe, self.place(trial), rung if there else 0, time.monotonic() - started)
        self.trials.note(trial=trial.number, **found._asdict())
        if not there:
            raise OutOfTimeError
        self.say(self.line(trial, rung))

    def place(self, trial: Trial) -> Path:
        return self.directory / "trials" / f"{trial.number:03d}"

    def line(self, trial: Trial, rung: int) -> str:
        """One trial at one rung, beside the chosen recipe at the same."""
        one, chosen = trial.at(rung), self.trials.all[0].at(rung)
        assert one is not None
        beside = f" (chosen: {told_score(chosen)})" if trial.number and chosen is not None else ""
        values = told_values(trial.values, self.trials.all[0].values)
        left = spoken(self.deadline - time.monotonic())
        where = "end" if one.ended else f"rung {rung} of {self.rungs}"
        return f"trial {trial.number}, {where}, step {one.step}: {self.metric} {told_score(one)}{beside}; {values}; {left} left"
