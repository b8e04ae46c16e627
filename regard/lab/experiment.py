"""One frame for experiments: which trials there are, which are done, and what is told, drawn and written of them."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.corpora.files import write_lines
from regard.data.sealed import lock
from regard.drafting import Files
from regard.errors import UserError
from regard.insight.curves import Picture, save
from regard.lab.grids import Grid, latex, markdown, shown
from regard.lab.ledger import Ledger, agree, claim
from regard.overrides import flatten

Row = dict[str, Any]
Say = Callable[[str], None]
NO_FILES = Files({}, {}, {})


@dataclass(frozen=True)
class Setting:
    """How much work an experiment is."""

    about: str
    seeds: int = 1
    changes: Sequence[str] = ()  # key.path=value for all recipes
    values: Mapping[str, Any] = field(default_factory=dict)  # what is no key of a recipe: lengths, sizes
    judges: bool = True  # whether it is enough to agree or disagree with anybody


def smoke(changes: Sequence[str] = (), **values: Any) -> Setting:
    return Setting("seconds, shows no more than that it runs", changes=changes, values=values, judges=False)


class Asked(NamedTuple):
    """What somebody wants of an experiment."""

    setting: Setting
    names: Sequence[str]  # of what is compared
    seeds: int
    directory: Path
    changes: Sequence[str] = ()  # more of them, which win over those of the setting, not over what is compared
    files: Files = NO_FILES  # instead of what the recipes name
    say: Say = print

    @property
    def conditions(self) -> dict[str, Any]:
        """What every trial hangs on; more names or seeds may be asked for later."""
        setting = {"changes": list(self.setting.changes), **self.setting.values}
        facts: dict[str, Any] = flatten({**setting, "overrides": list(self.changes), "files": self.files._asdict()})
        return json.loads(json.dumps(facts, default=str))  # type: ignore[no-any-return]

    @property
    def budget(self) -> list[str]:
        """What a table has to say of its conditions."""
        changed = " ".join([*self.setting.changes, *self.changes])
        given = self.setting.values.items()
        told = {name: "as conditions.json has them" if isinstance(value, Mapping) else value for name, value in given}
        values = ", ".join(f"{name} {value}" for name, value in told.items())
        device = "cuda" if torch.cuda.is_available() else f"cpu, {torch.get_num_threads()} threads"
        lines = [f"{self.seeds} seed{'s' * (self.seeds > 1)} (1 to {self.seeds}); {self.setting.about}; measured on {device}"]
        return lines + [f"in every recipe: {changed}"] * bool(changed) + [values] * bool(values)


class Report(NamedTuple):
    """What an experiment has found."""

    title: str
    grid: Grid
    claims: Sequence[tuple[str, bool | None]] = ()  # of the lecture, and whether they hold here; None: nothing can be said
    notes: Sequence[str] = ()
    pictures: Mapping[str, Picture] = {}

    @property
    def latex(self) -> list[str]:
        """The table, and what else there is to say as comments."""
        return [*latex(self.grid), *(f"% {line}" for line in (self.title, *self.notes))]


class Experiment(NamedTuple):
    settings: Mapping[str, Setting]  # smoke (seconds, shows that it runs), quick, full
    names: Callable[[], Sequence[str]]  # of all that can be compared
    trial: Callable[[Asked, str, int, Path], Row]  # by name and seed, in a directory of its own
    report: Callable[[Asked, list[Row]], Report]


def conduct(experiment: Experiment, asked: Asked) -> tuple[list[Row], Report]:
    """Run the trials that are not yet in `trials.jsonl`, and report on all."""
    claim(asked.directory, "conditions.json")
    trials = [(name, seed) for seed in range(1, asked.seeds + 1) for name in asked.names]
    with lock(asked.directory):
        agree(asked.directory / "conditions.json", asked.conditions)
        ledger, rows = Ledger(asked.directory / "trials.jsonl", ("name", "seed")), list[Row]()
        try:
            for number, (name, seed) in enumerate(trials, start=1):
                asked.say(f"{number} of {len(trials)}: {name}, seed {seed}")
                rows.append(ledger.once({"name": name, "seed": seed}, partial(timed, experiment, asked, name, seed)))
        finally:
            ledger.close()
        found = experiment.report(asked, rows)
        report = as_told(found, asked.setting.judges, asked.budget)
        publish(report, rows, asked.directory, asked.say)
    return rows, report


def timed(experiment: Experiment, asked: Asked, name: str, seed: int) -> Row:
    started = time.monotonic()
    row = experiment.trial(asked, name, seed, asked.directory / f"{name}-{seed}")
    told = "  ".join(f"{key} {shown(value)}" for key, value in row.items() if isinstance(value, int | float))
    asked.say(f"  {told}")
    return {**row, "seconds": round(time.monotonic() - started, 1)}


def publish(report: Report, rows: Sequence[Any], directory: Path, say: Say) -> None:
    """table.md, table.tex and results.json; each picture as PNG and SVG, where matplotlib is installed."""
    notes = [f"- {note}" for note in report.notes]
    write_lines(directory / "table.md", [f"# {report.title}", "", *markdown(report.grid), "", *notes])
    write_lines(directory / "table.tex", report.latex)
    results = {"title": report.title, "notes": list(report.notes), "rows": list(rows)}
    write_lines(directory / "results.json", [json.dumps(results, indent=1, default=str)])
    draw(report.pictures, directory, say)


def draw(pictures: Mapping[str, Picture], directory: Path, say: Say = lambda _: None) -> None:
    """Where nothing can draw, the rest of an experiment is not lost."""
    for name, picture in pictures.items():
        try:
            save(picture, directory / name)
        except UserError as error:
            say(f"{name}.png, {name}.svg: {error}")


def as_told(report: Report, judges: bool = True, budget: Sequence[str] = ()) -> Report:
    """With what became of the lecture's claims, and the budget, among its notes."""
    verdicts = [verdict(claim, holds if judges else None) for claim, holds in report.claims]
    return report._replace(notes=[*verdicts, *report.notes, *budget])


def of(rows: Sequence[Row], name: str, key: str) -> list[float]:
    """A figure of all seeds of one name; those that have none are left out."""
    return [row[key] for row in rows if row["name"] == name and row.get(key) is not None]


def verdict(claim: str, holds: bool | None) -> str:
    """What a lecture says, beside what was found."""
    if holds is None:
        return f"not judged here: the lecture's “{claim}”"
    return f"{'agrees with the lecture' if holds else 'DISAGREES with the lecture'}: “{claim}”"
