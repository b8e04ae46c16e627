"""Which cell? Every cell under the same budget of parameters, data, updates and trials, on the tasks of lecture 004."""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import torch

from regard.data.sealed import lock
from regard.lab.budget import count, size_for
from regard.lab.ledger import Ledger, agree, claim
from regard.lab.search import Hyperparameters, best, choices
from regard.lab.settings import Setting, Size
from regard.lab.tasks import TASKS, Loaded
from regard.lab.texts import Texts
from regard.lab.trial import build, measure, train
from regard.models.device import choose_device
from regard.overrides import flatten
from regard.training.display import Display

FREE = ("about", "seeds")  # what may differ when a comparison goes on: more seeds, more cells, more tasks


@dataclass(frozen=True)
class Comparison:
    """What is compared, under which conditions."""

    setting: Setting
    cells: Sequence[str]
    tasks: Sequence[str]
    texts: Texts | None  # of the words task

    @property
    def facts(self) -> dict[str, Any]:
        """What all trials hang on."""
        return flatten({name: value for name, value in asdict(self.setting).items() if name not in FREE})

    @property
    def trials(self) -> int:
        return len(self.cells) * len(self.tasks) * (self.setting.trials + self.setting.seeds)


class Result(NamedTuple):
    """A cell's test figure of each seed; None where training diverged."""

    task: str
    cell: str
    hidden_size: int
    parameters: int
    choice: Hyperparameters
    figures: list[float | None]

    @property
    def finite(self) -> list[float]:
        return [figure for figure in self.figures if figure is not None]

    @property
    def mean(self) -> float | None:
        return mean(self.finite) if self.finite else None

    @property
    def deviation(self) -> float | None:
        return stdev(self.finite) if len(self.finite) > 1 else None


class Contest(NamedTuple):
    """One task, its data loaded, and where finished trials go."""

    task: str
    loaded: Loaded
    setting: Setting
    device: torch.device
    ledger: Ledger
    display: Display

    @property
    def size(self) -> Size:
        return self.setting.sizes[self.task]

    def result(self, cell: str) -> Result:
        """Search, then test the best choice with every seed."""
        tried = choices(self.setting.trials)
        rows = [self.trial(cell, "search", number, 1, choice, self.size.search) for number, choice in enumerate(tried, 1)]
        choice = tried[best(rows)]
        seeds = range(1, self.setting.seeds + 1)
        figures = [self.trial(cell, "test", seed, seed, choice, self.size.updates)["test"] for seed in seeds]
        return Result(self.task, cell, rows[0]["hidden_size"], rows[0]["parameters"], choice, figures)

    def trial(self, cell: str, kind: str, number: int, seed: int, choice: Hyperparameters, updates: int) -> dict[str, Any]:
        facts = {"task": self.task, "cell": cell, "kind": kind, "number": number, "seed": seed, **choice._asdict()}
        row = self.ledger.once(facts, lambda: self.run(facts, choice, updates))
        self.display.advance(self.ledger.served, 0)
        return row

    def run(self, facts: dict[str, Any], choice: Hyperparameters, updates: int) -> dict[str, Any]:
        """Train, validate and, if it is not the search, test."""
        started, size, figure, cell, seed = time.monotonic(), self.size, TASKS[self.task].figure, facts["cell"], facts["seed"]
        hidden_size = size_for(cell, self.loaded.vocabulary, size.parameters)
        model = build(cell, self.loaded.vocabulary, hidden_size, choice.scale, seed).to(self.device)
        valid = train(model, self.loaded, size, choice, updates, seed)
        tested = math.isfinite(valid) and facts["kind"] == "test"
        row = {
            "hidden_size": hidden_size,
            "parameters": count(cell, self.loaded.vocabulary, hidden_size),
            "updates": updates,
            "valid": valid if math.isfinite(valid) else None,
            "test": measure(model, self.loaded.test, size, figure) if tested else None,
            "device": self.device.type,
            "threads": torch.get_num_threads(),
            "seconds": round(time.monotonic() - started, 2),
        }
        self.display.say(line(facts | row, figure.name))
        return row


def line(row: dict[str, Any], figure: str) -> str:
    """What a person sees of a trial."""
    what = f"{row['task']:6} {row['cell']:15} {row['kind']:6} {row['number']}"
    how = f"size {row['hidden_size']:4}  rate {row['learning_rate']:.1e}  scale {row['scale']:.2f}  clip {row['clip']:.1f}"
    valid = "diverged" if row["valid"] is None else f"valid nats {row['valid']:.3f}"
    test = "" if row["test"] is None else f"  test {figure} {row['test']:.3f}"
    return f"{what}  {how}  {valid}{test}  ({row['seconds']:.1f} s)"


def compare(plan: Comparison, directory: Path, talk: bool = True) -> list[Result]:
    """Run what is not yet in `directory/trials.jsonl`; the results in the order of the tasks and cells."""
    device = choose_device(plan.setting.device)
    claim(directory, "setting.json")
    with lock(directory):
        agree(directory / "setting.json", plan.facts)
        if plan.texts is not None:
            agree(directory / "text.json", {"text": plan.texts.name, "sha256": plan.texts.digest})
        ledger = Ledger(directory / "trials.jsonl", ("task", "cell", "kind", "number", *Hyperparameters._fields))
        display = Display(plan.trials, 0, None, talk)
        try:
            contests = (
                Contest(task, TASKS[task].load(plan.setting, plan.texts), plan.setting, device, ledger, display)
                for task in plan.tasks
            )
            return [contest.result(cell) for contest in contests for cell in plan.cells]
        finally:
            display.close()
            ledger.close()
