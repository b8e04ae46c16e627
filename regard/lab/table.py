"""The table of a comparison: ours, mean ± standard deviation over the seeds, beside the lecture's."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from regard.corpora.files import write_lines
from regard.insight.curves import Bars, Picture, Series
from regard.lab.cells import Comparison, Result
from regard.lab.experiment import draw
from regard.lab.grids import Grid, latex, markdown, print_grid
from regard.lab.lecture import LECTURE
from regard.lab.tasks import TASKS


def figures(plan: Comparison, results: Sequence[Result]) -> Grid:
    """One row a cell; for each task ours and the lecture's."""
    found = {(result.task, result.cell): result for result in results}
    header = ["cell", *(name for task in plan.tasks for name in (task, "lecture"))]
    rows = [
        [cell, *(text for task in plan.tasks for text in (ours(found[task, cell]), lecture(task, cell)))] for cell in plan.cells
    ]
    return [header, *rows]


def ours(result: Result) -> str:
    if result.mean is None:
        return "diverged"
    spread = "" if result.deviation is None else f" ± {result.deviation:.3f}"
    lost = len(result.figures) - len(result.finite)
    return f"{result.mean:.3f}{spread}" + (f" ({lost} diverged)" if lost else "")


def lecture(task: str, cell: str) -> str:
    return f"{getattr(LECTURE[cell], task):.3f}" if cell in LECTURE else ""


def sizes(results: Sequence[Result]) -> Grid:
    """What each cell was given, and what its search found."""
    header = ["task", "cell", "hidden size", "parameters", "learning rate", "scale", "clip"]
    return [
        header,
        *(
            [one.task, one.cell, f"{one.hidden_size}", f"{one.parameters:,}", *(f"{value:.3g}" for value in one.choice)]
            for one in results
        ),
    ]


def notes(plan: Comparison) -> list[str]:
    """What the figures mean and what they cost."""
    setting = plan.setting
    lines = [f"{task}: {TASKS[task].about}" for task in plan.tasks]
    lines += [f"words: the text is {plan.texts.name}"] if plan.texts is not None and "words" in plan.tasks else []
    for task in plan.tasks:
        size = setting.sizes[task]
        lines.append(
            f"{task}: {size.parameters:,} parameters, {setting.trials} trials of {size.search} updates, "
            f"then {setting.seeds} seeds of {size.updates} updates with the best; batch {size.batch}"
        )
    lines.append(
        "lecture: Jozefowicz et al. 2015; words on the Penn Treebank with 20 million parameters; other sizes than ours"
    )
    return lines


def show(plan: Comparison, results: Sequence[Result]) -> None:
    print_grid(figures(plan, results))
    for note in notes(plan):
        Console().print(note, highlight=False, markup=False, soft_wrap=True)


def row(result: Result) -> dict[str, Any]:
    """A result for programs."""
    known = LECTURE.get(result.cell)
    return {
        **result._asdict(),
        "choice": result.choice._asdict(),
        "figure": TASKS[result.task].figure.name,
        "mean": result.mean,
        "deviation": result.deviation,
        "lecture": None if known is None else getattr(known, result.task),
        "lecture_row": None if known is None else known.name,
        "lecture_5m": None if known is None or result.task != "words" else known.words_5m,
    }


def write(plan: Comparison, results: Sequence[Result], directory: Path) -> None:
    """`table.md` for people, `table.tex` for papers, `results.json` for programs; bars of each task as PNG and SVG."""
    text = [*markdown(figures(plan, results)), "", *(f"- {note}" for note in notes(plan)), "", *markdown(sizes(results))]
    write_lines(directory / "table.md", text)
    write_lines(directory / "results.json", [json.dumps([row(result) for result in results], indent=1)])
    write_lines(directory / "table.tex", [*latex(figures(plan, results)), *(f"% {note}" for note in notes(plan))])
    panels = [bars([one for one in results if one.task == task], task) for task in plan.tasks]
    draw({"cells": Picture("Cells under equal budgets", panels, "; ".join(notes(plan)[len(plan.tasks) : -1]))}, directory)


def bars(results: Sequence[Result], task: str) -> Bars:
    """Ours beside the lecture's, each with the standard deviation over its seeds."""
    cells, name = [one.cell for one in results], TASKS[task].figure.name
    published = [getattr(LECTURE[cell], task) if cell in LECTURE else None for cell in cells]
    spreads = [one.deviation or 0.0 for one in results]
    return Bars(
        f"{task}: {name}",
        "cell",
        name,
        [Series("ours", cells, [one.mean for one in results], spreads), Series("lecture", cells, published)],
    )
