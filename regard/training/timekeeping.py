"""The time of one run: what is said of it, and the updates that a run with `minutes` has."""

from collections.abc import Callable

from regard.recipe import Training
from regard.training.checkpoint import Progress
from regard.training.display import Display
from regard.training.distributed import Group
from regard.training.pacing import Pacing, Timing, pace_of


class Timekeeper:
    """Told of each update and validation. What it decides is a part of the progress, so that a run that is resumed knows it;
    the journal has it too."""

    def __init__(
        self, training: Training, group: Group, progress: Progress, began: float | None, display: Display,
        note: Callable[..., None],
    ) -> None:  # fmt: skip
        self.training, self.group, self.progress, self.display, self.note = training, group, progress, display, note
        further = 1 if training.average > 1 else 0  # the mean of the best is validated too
        self.pacing = (
            None
            if training.minutes is None
            else Pacing(training.minutes, training.validate_every, began, progress.seconds, further)
        )
        self.timing = Timing() if self.pacing is None else self.pacing.timing

    @property
    def updates(self) -> int:
        """Of the whole run, as far as is known now."""
        return pace_of(self.training.updates, self.progress.pace).updates

    def validations(self) -> tuple[int, int]:
        """The step of the next one, and how many are to come, that of the last update among them."""
        step, every, first = self.progress.step, self.training.validate_every, self.training.validate_first
        due = range(step - step % every + every, self.updates, every)
        if first is not None and step < first < min(every, self.updates):
            return first, len(due) + 2
        return (due[0] if due else self.updates), len(due) + 1

    def updated(self) -> None:
        self.timing.updated()
        if self.pacing is not None:
            self.end_in_time(self.pacing)
        self.display.tell_time(self.progress.step, self.timing, *self.validations())

    def end_in_time(self, pacing: Pacing) -> None:
        step, before = self.progress.step, pace_of(self.training.updates, self.progress.pace)
        pace = self.group.share(lambda: pacing.decide(step, before))
        if pace != before:
            self.progress.pace = pace
            self.note(step=step, updates=pace.updates)
            self.display.paced(step, before.updates, pace.updates, pacing.seconds)

    def affords(self) -> bool:
        """A validation that is due: of a run with `minutes` they get a quarter of the time at most."""
        return self.pacing is None or self.group.share(self.pacing.affords)

    def validated(self) -> None:
        self.timing.validated()

    @property
    def spent(self) -> float:
        return 0.0 if self.pacing is None else self.pacing.spent
