"""Experiments of one kind: systems trained under one budget and judged by the same figures, beside the lecture's claims."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

from regard.insight.curves import Bars, Picture, Series
from regard.lab.experiment import Asked, Experiment, Report, Row, Setting, of
from regard.lab.grids import spread
from regard.lab.systems import Judge, System, compete

Figure = Callable[[str, str], float]  # of a system's name and a column: the mean over seeds
COST = ("parameters", "updates", "tokens/s", "MB")


class Claim(NamedTuple):
    """What a lecture says, and how the table shows it; `needs` are the systems without which nothing can be said.
    `holds` is None where the figures say nothing about it."""

    text: str
    needs: Sequence[str]
    holds: Callable[[Figure], bool | None]


class Contest(NamedTuple):
    """`prepare` gives each trial its data, where no corpus has them."""

    title: str
    systems: Mapping[str, System]
    judge: Judge
    columns: Sequence[str]  # figures of a row; those that no row has are left out
    drawn: Sequence[str]  # which of them are drawn
    claims: Sequence[Claim] = ()
    notes: Sequence[str] = ()
    prepare: Callable[[Asked, str], Asked] = lambda asked, name: asked
    beside: Sequence[str] = ()  # columns of the lecture's own table
    lecture: Mapping[str, Sequence[str]] = {}  # what it has in them, by system

    def experiment(self, settings: Mapping[str, Setting]) -> Experiment:
        return Experiment(settings, lambda: list(self.systems), self.trial, self.report)

    def trial(self, asked: Asked, name: str, seed: int, run: Path) -> Row:
        system = self.systems[name]
        sizes = [*system.sizes, *asked.setting.values.get("sizes", {}).get(name, ())]
        return compete(system._replace(sizes=sizes), self.prepare(asked, name), seed, run, self.judge)

    def report(self, asked: Asked, rows: list[Row]) -> Report:
        known = {key for row in rows for key in row}
        columns = [column for column in (*self.columns, *COST) if column in known]
        grid = [["system", *columns, *self.beside]]
        for name in asked.names:
            figures = [spread(of(rows, name, column)) for column in columns]
            grid.append([name, *figures, *self.lecture.get(name, [""] * len(self.beside))])
        panels = [bars(asked.names, rows, column) for column in self.drawn if column in known]
        return Report(
            self.title,
            grid,
            self.judged(asked.names, rows),
            self.notes,
            {"systems": Picture(self.title, panels, "; ".join(asked.budget))},
        )

    def judged(self, names: Sequence[str], rows: list[Row]) -> list[tuple[str, bool | None]]:
        def figure(name: str, column: str) -> float:
            return mean(of(rows, name, column))

        return [(one.text, one.holds(figure) if set(one.needs) <= set(names) else None) for one in self.claims]


def bars(names: Sequence[str], rows: list[Row], column: str) -> Bars:
    found = {name: of(rows, name, column) for name in names}
    known = [name for name, values in found.items() if values]
    return Bars(column, "system", column, [Series(column, known, [mean(found[name]) for name in known])])
