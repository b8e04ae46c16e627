"""The trials of a search, kept as one JSON object a line: what was proposed, how far each came, which were kept."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import DamagedError
from regard.training.journal import Journal


class Reached(NamedTuple):
    """A trial at a rung: the best validation so far, and what the updates since the rung before took."""

    rung: int  # from 1; 0: the time was up between two rungs
    step: int  # updates done
    score: float | None  # None: not a number
    loss: float | None
    seconds: float
    parameters: int
    ended: bool  # there is nothing left to train: all updates are done, or patience ran out


@dataclass
class Trial:
    """A point of the space. Trial 0 is the recipe that the search is around."""

    number: int
    wave: int
    values: dict[str, Any]
    reached: list[Reached] = field(default_factory=list)
    failed: str = ""

    def at(self, rung: int) -> Reached | None:
        """How it stood there; one that ended before stays as it was."""
        return next((one for one in self.reached if one.rung == rung or (one.ended and one.rung <= rung)), None)

    @property
    def last(self) -> Reached | None:
        return self.reached[-1] if self.reached else None

    @property
    def seconds(self) -> float:
        return sum(one.seconds for one in self.reached)


class Trials:
    """All of a study, in order; each fact is on the disk before anything follows from it."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes() if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]  # a last line that was cut off does not count
        self.all: list[Trial] = []
        self.kept: dict[tuple[int, int], list[int]] = {}  # by wave and rung: the trials that went on
        self.history: list[tuple[int, Reached]] = []  # trials by number, as they came to their rungs
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                self.take(json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError):
                raise DamagedError(f"{path}: line {number} is no row of a search") from None
        self.journal = Journal(path, len(whole))

    def take(self, row: dict[str, Any]) -> None:
        if "kept" in row:
            self.kept[row["wave"], row["rung"]] = row["kept"]
        elif "values" in row:
            self.all.append(Trial(row["trial"], row["wave"], row["values"]))
        elif "failed" in row:
            self.all[row["trial"]].failed = row["failed"]
        else:
            number, one = row["trial"], Reached(**{key: value for key, value in row.items() if key != "trial"})
            self.all[number].reached.append(one)
            self.history.append((number, one))

    def note(self, **row: Any) -> None:
        self.journal.write(**row)
        self.journal.settle()
        self.take(row)

    def propose(self, wave: int, values: dict[str, Any]) -> Trial:
        self.note(trial=len(self.all), wave=wave, values=values)
        return self.all[-1]

    def of(self, wave: int) -> list[Trial]:
        return [trial for trial in self.all if trial.wave == wave]

    @property
    def seconds(self) -> float:
        return sum(trial.seconds for trial in self.all)


class Ranking(NamedTuple):
    """Better first: by the metric that decides on checkpoints, of equal scores by the loss, of equal losses by number."""

    higher_is_better: bool

    def worth(self, one: Reached | None) -> tuple[float, float]:
        if one is None or one.score is None:
            return -math.inf, -math.inf
        return one.score if self.higher_is_better else -one.score, -math.inf if one.loss is None else -one.loss

    def at(self, rung: int, trials: Sequence[Trial]) -> list[Trial]:
        there = [trial for trial in trials if trial.at(rung) is not None and not trial.failed]
        return sorted(there, key=lambda trial: self.worth(trial.at(rung)), reverse=True)

    def so_far(self, trials: Sequence[Trial]) -> list[Trial]:
        """Wherever they stand now; those without a score come last."""
        return sorted(trials, key=lambda trial: self.worth(None if trial.failed else trial.last), reverse=True)
