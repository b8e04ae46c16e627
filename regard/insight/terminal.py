"""A heatmap in the terminal: source words down the columns, target words at the rows, shades between them."""

import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from rich.cells import cell_len

from regard.data.links import links_from_weights
from regard.insight.heatmap import GOLD_TOLD, STRONG, Heatmap, abbreviate, graphemes, labels, longest, printable

if TYPE_CHECKING:
    from regard.insight.look import Candidate, Chance

BLOCKS = " ░▒▓█"
DARK, BRIGHT = (18, 24, 38), (150, 215, 255)  # one hue, even steps of lightness; readable on any background
HEADER = 16  # the most lines a source word takes above its column
ARROW = " -> "
SHARE = 5  # columns of a weight, " 0.25"

OUTLINE, DASHED = "[]", "()"  # of true links, and of possible ones


@runtime_checkable
class Paint(Protocol):
    def __call__(self, shade: float, cell: int, outline: str = "") -> str: ...


class Layout(NamedTuple):
    """Widths in terminal columns, and how many source words stand side by side."""

    label: int
    cell: int
    summary: int
    num_columns: int


def terminal(heatmap: Heatmap, width: int | None = None, color: bool = True) -> str:
    """The picture as lines of text, at most `width` columns wide (the terminal's own width when not given).

    Sentences too long for one panel continue in the next; a row ends with the largest weight and its source word.
    """
    width, heatmap = width or shutil.get_terminal_size().columns, heatmap.whole
    paint = choose_paint(color and not os.environ.get("NO_COLOR"))
    layout = plan(heatmap, width)
    parts = [abbreviate(printable(heatmap.title), width)] if heatmap.title else []
    for start in range(0, max(len(heatmap.source), 1), layout.num_columns):
        columns = range(start, min(start + layout.num_columns, len(heatmap.source)))
        parts.append("\n".join(draw_panel(heatmap, columns, layout, paint)))
    scale = "".join(paint(step / 4, 2) for step in range(5))
    gold = f"   {OUTLINE} {GOLD_TOLD}" if heatmap.gold | heatmap.possible else ""
    return "\n\n".join([*parts, f"0 {scale} {heatmap.peak:.2g}{gold}"])


def probabilities(chances: Sequence["Chance"], candidates: Sequence["Candidate"]) -> str:
    """Each token that was written beside the most probable ones of its step, and the outputs of the beam."""
    names = labels([one.token for one in chances], 24)
    width = longest(names)
    lines = [f"{'p':>{width + 6}}  most probable"] if chances else []
    for name, one in zip(names, chances, strict=True):
        others = ", ".join(f"{printable(token)} {share:.3f}" for token, share in one.alternatives)
        lines.append(f"{name}{' ' * (width - cell_len(name))} {one.probability:.3f}  {others}")
    found = [f"{one.log_prob:8.3f}  {printable(one.text)}" for one in candidates]
    return "\n".join([*lines, *([f"\n{'log p':>8}  output of the beam", *found] if found else [])])


def plan(heatmap: Heatmap, width: int) -> Layout:
    label = min(longest(labels(heatmap.target)), max(width // 4, 3))
    summary = min(longest(labels(heatmap.source)), max(width // 4 - len(ARROW), 3))
    room = width - label - 1 - SHARE - len(ARROW) - summary
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
        outlines = [outline(heatmap, (column, row)) for column in columns]
        cells = draw_cells(shades[row, columns.start : columns.stop], outlines, layout.cell, paint)
        best = strongest.get(row, -1)
        summary = f" {heatmap.weights[row, best]:.2f}{ARROW}{source[best]}" if best in columns else ""
        lines.append(" " * (layout.label - cell_len(label)) + f"{label} {cells}{summary}")
    return lines


def draw_cells(shades: Float[np.ndarray, " source"], outlines: Sequence[str], cell: int, paint: Paint) -> str:
    return "".join(paint(shade, cell, mark) for shade, mark in zip(shades.tolist(), outlines, strict=True))


def outline(heatmap: Heatmap, link: tuple[int, int]) -> str:
    """What stands around the cell of a true link; a cell of two columns has no room for more."""
    if link in heatmap.gold:
        return OUTLINE
    return DASHED if link in heatmap.possible else ""


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


def blocks(shade: float, cell: int, outline: str = "") -> str:
    block = BLOCKS[round(shade * (len(BLOCKS) - 1))]
    return around(outline, cell, block) or block * cell


def around(outline: str, cell: int, inside: str = " ") -> str:
    return outline and f"{outline[0]}{inside * (cell - 2)}{outline[1]}"


def true_color(shade: float, cell: int, outline: str = "") -> str:
    red, green, blue = (round(dark + shade * (bright - dark)) for dark, bright in zip(DARK, BRIGHT, strict=True))
    return f"\x1b[48;2;{red};{green};{blue}m{contrast(shade, outline)}{around(outline, cell) or ' ' * cell}\x1b[0m"


def grey(shade: float, cell: int, outline: str = "") -> str:
    """The 24 greys of the 256 colours: every terminal has them."""
    return f"\x1b[48;5;{232 + round(shade * 23)}m{contrast(shade, outline)}{around(outline, cell) or ' ' * cell}\x1b[0m"


def contrast(shade: float, outline: str) -> str:
    return (f"\x1b[{30 if shade > STRONG else 97}m") if outline else ""
