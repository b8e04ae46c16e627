"""A heatmap in the terminal: source words down the columns, target words at the rows, shades between them."""

import os
import shutil
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from rich.cells import cell_len

from regard.data.links import links_from_weights
from regard.insight.heatmap import Heatmap, abbreviate, graphemes, labels, longest, printable

BLOCKS = " ░▒▓█"
DARK, BRIGHT = (18, 24, 38), (150, 215, 255)  # one hue, even steps of lightness; readable on any background
HEADER = 16  # the most lines a source word takes above its column
ARROW = " -> "

Paint = Callable[[float, int], str]


class Layout(NamedTuple):
    """Widths in terminal columns, and how many source words stand side by side."""

    label: int
    cell: int
    summary: int
    num_columns: int


def terminal(heatmap: Heatmap, width: int | None = None, color: bool = True) -> str:
    """The picture as lines of text, at most `width` columns wide (the terminal's own width when not given).

    Sentences too long for one panel continue in the next; a row ends with the source word it looks at most.
    """
    width, heatmap = width or shutil.get_terminal_size().columns, heatmap.whole
    paint = choose_paint(color and not os.environ.get("NO_COLOR"))
    layout = plan(heatmap, width)
    parts = [abbreviate(printable(heatmap.title), width)] if heatmap.title else []
    for start in range(0, max(len(heatmap.source), 1), layout.num_columns):
        columns = range(start, min(start + layout.num_columns, len(heatmap.source)))
        parts.append("\n".join(draw_panel(heatmap, columns, layout, paint)))
    scale = "".join(paint(step / 4, 2) for step in range(5))
    return "\n\n".join([*parts, f"0 {scale} {heatmap.peak:.2g}"])


def plan(heatmap: Heatmap, width: int) -> Layout:
    label = min(longest(labels(heatmap.target)), max(width // 4, 3))
    summary = min(longest(labels(heatmap.source)), max(width // 4 - len(ARROW), 3))
    room = width - label - 1 - len(ARROW) - summary
    cell = 3 if 3 * len(heatmap.source) <= room else 2
    return Layout(label, cell, summary, max(room // cell, 1))


def draw_panel(heatmap: Heatmap, columns: range, layout: Layout, paint: Paint) -> list[str]:
    """The lines for some of the source words: their names from top to bottom, then a line for each target word."""
    margin = " " * (layout.label + 1)
    header = [margin + line for line in upright([heatmap.source[column] for column in columns], layout.cell)]
    return [line.rstrip() for line in header + draw_rows(heatmap, columns, layout, paint)]


def draw_rows(heatmap: Heatmap, columns: range, layout: Layout, paint: Paint) -> list[str]:
    shades, source = heatmap.shades, labels(heatmap.source, layout.summary)
    strongest = {target: source for source, target in links_from_weights(shades)}
    lines = []
    for row, label in enumerate(labels(heatmap.target, layout.label)):
        cells = draw_cells(shades[row, columns.start : columns.stop], layout.cell, paint)
        best = strongest.get(row, -1)
        summary = ARROW + source[best] if best in columns else ""
        lines.append(" " * (layout.label - cell_len(label)) + f"{label} {cells}{summary}")
    return lines


def draw_cells(shades: Float[np.ndarray, " source"], cell: int, paint: Paint) -> str:
    return "".join(paint(shade, cell) for shade in shades.tolist())


def upright(words: Sequence[str], cell: int) -> list[str]:
    """The words side by side, each written from top to bottom and ending on the last line."""
    columns = [letters_of(word) for word in words]
    depth = max(map(len, columns), default=0)
    padded = [[""] * (depth - len(column)) + column for column in columns]
    return ["".join(fit(letter, cell) for letter in line) for line in zip(*padded, strict=True)]


def letters_of(word: str) -> list[str]:
    letters = graphemes(printable(word))
    return letters if len(letters) <= HEADER else [*letters[: HEADER - 1], "⋮"]


def fit(letter: str, cell: int) -> str:
    """One letter in one cell; of a joined emoji that would take more, its first part."""
    letter = letter if cell_len(letter) <= cell else letter[0]
    return letter + " " * (cell - cell_len(letter))


def choose_paint(color: bool) -> Paint:
    if not color:
        return blocks
    return true_color if os.environ.get("COLORTERM") in {"truecolor", "24bit"} else grey


def blocks(shade: float, cell: int) -> str:
    return BLOCKS[round(shade * (len(BLOCKS) - 1))] * cell


def true_color(shade: float, cell: int) -> str:
    red, green, blue = (round(dark + shade * (bright - dark)) for dark, bright in zip(DARK, BRIGHT, strict=True))
    return f"\x1b[48;2;{red};{green};{blue}m{' ' * cell}\x1b[0m"


def grey(shade: float, cell: int) -> str:
    """The 24 greys of the 256 colours: every terminal has them."""
    return f"\x1b[48;5;{232 + round(shade * 23)}m{' ' * cell}\x1b[0m"
