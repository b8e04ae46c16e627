"""Tables of an experiment: on a terminal, as Markdown, as LaTeX."""

import re
from collections.abc import Sequence
from statistics import mean, stdev

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

Grid = list[list[str]]  # a header and its rows


def print_grid(grid: Grid) -> None:
    console, (header, *rows) = Console(), grid
    needed = sum(max(len(row[place]) for row in grid) + 4 for place in range(len(header)))
    console.width = max(console.width, 100, 12 * len(header), 0 if console.is_terminal else needed)  # a row is one line
    table = Table(box=SIMPLE_HEAD)
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if number else "left", no_wrap=number == 0)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def markdown(grid: Grid) -> list[str]:
    """A bar within a cell, as in |dL/dh_t|, would end it."""
    header, *rows = ([cell.replace("|", "\\|") for cell in row] for row in grid)
    return [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]


def latex(grid: Grid) -> list[str]:
    """A `tabular` with lines as booktabs draws them, to be put into a paper as it is."""
    header, *rows = ([escaped(cell) for cell in row] for row in grid)
    body = [f"{' & '.join(row)} \\\\" for row in rows]
    columns = "l" + "r" * (len(header) - 1)
    head = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", f"{' & '.join(header)} \\\\", "\\midrule"]
    return [*head, *body, "\\bottomrule", "\\end{tabular}"]


def escaped(cell: str) -> str:
    return re.sub(r"([_&%#$])", r"\\\1", cell).replace("±", "$\\pm$")


def spread(values: Sequence[float]) -> str:
    """Of one seed the value; of several mean ± standard deviation."""
    if len(values) < 2:
        return "".join(map(shown, values))
    return f"{shown(mean(values))} ± {shown(stdev(values))}"


def shown(value: object) -> str:
    if isinstance(value, float) and abs(value) >= 1e6:
        return f"{value:.3g}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
