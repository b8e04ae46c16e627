"""A run that ends in time: what its updates and validations take, measured as they go, and how many updates still fit."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

Clock = Callable[[], float]  # seconds

LEAST = 20  # updates
VALIDATING = 0.25  # the share of the time that validations get, before the last one
ENDING = 0.1  # the share that is kept for scores of the finished model
LATE, EARLY = 0.05, 0.15  # of the time that is left: what is worth another number of updates
NOISE = 0.01  # of all the time, which is not
PAUSE = 0.02  # of all the time, between two decisions
BEAM = 3.0  # times as long as greedy validation takes the search of a finished model
FEWEST = 50  # rows that are scored at the end, whatever the time
MEMORY = 20.0  # seconds that count when the time of an update is told


class Pace(NamedTuple):
    """From step `since` on the run has another number of updates than its recipe. The schedule goes on where it was, at the
    step `at` of the recipe's, and comes to its end with them: the learning rate does not jump."""

    since: int
    at: float
    updates: int
    recipe: int  # the updates of the recipe that it was decided for

    def place(self, step: int) -> float:
        """The step of the recipe's schedule: at + (step - since) (recipe - at) / (updates - since)."""
        left = max(self.updates - self.since, 1)
        return self.at + min(max(step - self.since, 0) / left, 1.0) * (self.recipe - self.at)


def pace_of(updates: int, decided: Pace | None) -> Pace:
    """As the recipe has it, unless something else was decided."""
    return Pace(0, 0.0, updates, updates) if decided is None else decided


def place_of(step: int, decided: Pace | None) -> int | float:
    """In the recipe's schedule."""
    return step if decided is None else decided.place(step)


class Timing:
    """Seconds of an update, of lately: time that is long past counts e times less every `memory` seconds."""

    def __init__(self, clock: Clock = time.monotonic, memory: float = MEMORY) -> None:
        self.clock, self.memory = clock, memory
        self.began = self.last = clock()
        self.seconds = self.count = 0.0
        self.updates = 0
        self.validation = self.validating = 0.0  # seconds of the last one, and of all

    def updated(self) -> None:
        took, self.last = self.clock() - self.last, self.clock()
        self.updates += 1
        if self.updates > 2:  # the first are slow
            fade = math.exp(-took / self.memory)
            self.seconds, self.count = self.seconds * fade + took, self.count * fade + 1

    def validated(self) -> None:
        """Since the last update."""
        self.validation, self.last = self.clock() - self.last, self.clock()
        self.validating += self.validation

    @property
    def each(self) -> float:
        return self.seconds / max(self.count, 1e-9)

    @property
    def known(self) -> bool:
        """Whether enough has been seen: twenty updates, or a few that took long."""
        return self.updates >= 22 or (self.updates >= 5 and self.seconds > 5)

    def left(self, updates: int, validations: int) -> float:
        return updates * self.each + validations * self.validation


class Pacing:
    """The clock of a run with `minutes`, of which it has `spent` some seconds earlier. `further`: what is done with the
    finished weights before its scores, in validations."""

    def __init__(
        self, minutes: int | float, every: int, began: float | None = None, spent: float = 0.0, further: int = 1,
        clock: Clock = time.monotonic,
    ) -> None:  # fmt: skip
        self.seconds, self.every, self.further, self.clock = 60 * minutes, every, further, clock
        self.decided = -math.inf  # when, in seconds spent
        self.began = (clock() if began is None else began) - spent
        self.timing = Timing(clock, max(MEMORY, self.seconds / 10))

    @property
    def spent(self) -> float:
        return self.clock() - self.began

    def affords(self) -> bool:
        """Another validation, which takes no more than the last did; the first is always made."""
        validating = self.timing.validating + self.timing.validation
        return not self.timing.validating or validating <= VALIDATING * self.spent

    def fitting(self) -> float:
        """Updates that can still be made. Each has its part in the next validation, the last ones excepted."""
        timing = self.timing
        after = (1 + self.further) * timing.validation + ENDING * self.seconds
        each = min(timing.each + timing.validation / self.every, timing.each / (1 - VALIDATING))
        return max(self.seconds - self.spent - after, 0.0) / max(each, 1e-9)

    def decide(self, step: int, pace: Pace) -> Pace:
        """Another number of updates where this one would end late, or far too early; never more than the recipe's."""
        if not self.timing.known or step >= pace.updates or self.spent - self.decided < PAUSE * self.seconds:
            return pace
        fitting, left, each = self.fitting(), pace.updates - step, max(self.timing.each, 1e-9)
        noise = NOISE * self.seconds / each
        updates = min(max(step + int(fitting), min(LEAST, pace.recipe)), pace.recipe)
        late = left - fitting > max(LATE * left, noise) and updates < pace.updates
        early = updates - pace.updates > max(EARLY * left, 3 * noise)
        if not late and not early:
            return pace
        self.decided = self.spent
        return Pace(step, pace.place(step), max(updates, step), pace.recipe)

    def share(self, rows: int, validated: int) -> int:
        """How many of these rows the rest of the time suffices for: the last validation was of so many, and searched less."""
        left, each = max(self.seconds - self.spent, 0.0), BEAM * self.timing.validation / max(validated, 1)
        return rows if rows * each <= left else min(max(FEWEST, int(left / each)), rows)
