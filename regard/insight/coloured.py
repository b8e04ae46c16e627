"""Text coloured by a number for each token: on a terminal, as a page, as a picture. Blue is below 0, white 0, red above."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.cells import cell_len
from rich.color import Color
from rich.style import Style
from rich.text import Text

from regard.errors import UserError
from regard.insight.fonts import advice, boxes_untold, fonts_for
from regard.insight.heatmap import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, WHITE, RED = (33, 102, 172), (247, 247, 247), (178, 24, 43)  # the ends and the middle of matplotlib's RdBu
WIDTH = 96  # columns of a picture
INDENT = 2  # of what continues a line
MONOSPACED = "DejaVu Sans Mono"


class Coloured(NamedTuple):
    """Lines of tokens with a number each; `separator` stands between tokens."""

    title: str
    lines: Sequence[Sequence[tuple[str, float]]]
    separator: str = " "

    @property
    def most(self) -> float:
        """The number that is drawn strongest."""
        return max((abs(value) for line in self.lines for _, value in line), default=0.0) or 1.0

    def colour(self, value: float) -> tuple[int, int, int]:
        share, end = min(abs(value) / self.most, 1.0), RED if value > 0 else BLUE
        red, green, blue = (round(middle + share * (side - middle)) for middle, side in zip(WHITE, end, strict=True))
        return red, green, blue

    def ink(self, value: float) -> str:
        return "white" if abs(value) > 0.6 * self.most else "black"


def terminal(text: Coloured) -> Text:
    found = Text(f"{printable(text.title)} (blue {-text.most:.2f}, white 0, red {text.most:.2f})\n")
    for line in text.lines:
        for token, value in line:
            style = Style(color=text.ink(value), bgcolor=Color.from_rgb(*text.colour(value)).name)
            found.append(printable(token), style).append(text.separator)
        found.append("\n")
    return found


def html(text: Coloured) -> str:
    """One file that fetches nothing; each token tells its number to a hovering mouse and to screen readers."""
    lines = []
    for line in text.lines:
        spans = (
            f'<span title="{value:.3f}" style="background:rgb{text.colour(value)};color:{text.ink(value)}">'
            f"{escape(printable(token))}</span>"
            for token, value in line
        )
        lines.append(f"<p>{escape(text.separator).join(spans)}</p>")
    title = escape(printable(text.title))
    body = "\n".join(lines)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        "<style>body{font-family:monospace;max-width:100ch;margin:2em auto;background:white;color:black}"
        "p{white-space:pre-wrap;line-height:1.6}</style></head>\n"
        f"<body><h1>{title}</h1><p>blue {-text.most:.2f}, white 0, red {text.most:.2f}</p>\n{body}\n</body></html>\n"
    )


class Placed(NamedTuple):
    token: str
    value: float
    column: int
    row: int
    width: int


def placed(text: Coloured, width: int = WIDTH) -> Iterator[Placed]:
    """Where tokens stand when lines are wrapped at `width` columns."""
    row = 0
    for line in text.lines:
        column = 0
        for token, value in line:
            shown = printable(token)
            size = cell_len(shown)
            if column > INDENT and column + size > width:
                row, column = row + 1, INDENT
            yield Placed(shown, value, column, row, size)
            column += size + cell_len(text.separator)
        row += 1


def figure_of(text: Coloured) -> "Figure":
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ImportError:
        raise UserError("pictures need matplotlib: pip install 'regard[figures]'") from None
    tokens = list(placed(text))
    rows = 1 + max((one.row for one in tokens), default=0)
    figure = Figure(figsize=(WIDTH * 0.085, rows * 0.24 + 0.5))
    height = rows * 0.24 / (rows * 0.24 + 0.5)
    axes = figure.add_axes((0.01, 0.02, 0.98, height - 0.02), xlim=(0, WIDTH), ylim=(rows, 0))
    axes.set_axis_off()
    fonts = [MONOSPACED, *fonts_for([one.token for one in tokens])[0]]
    for one in tokens:
        red, green, blue = (part / 255 for part in text.colour(one.value))
        axes.add_patch(Rectangle((one.column, one.row), one.width, 0.92, color=(red, green, blue), linewidth=0))
        style: dict[str, Any] = {"fontsize": 8, "fontfamily": fonts, "color": text.ink(one.value), "parse_math": False}
        axes.text(one.column + one.width / 2, one.row + 0.48, one.token, ha="center", va="center", **style)
    scale = f"{printable(text.title)}\nblue {-text.most:.2f}, white 0, red {text.most:.2f}"
    figure.text(0.01, 1 - 0.04 / (rows * 0.24 + 0.5), scale, va="top", fontsize=8, parse_math=False)
    return figure


def boxes(text: Coloured) -> str | None:
    """What to say where a token is drawn as boxes."""
    return advice(fonts_for([text.title, *(one.token for one in placed(text))])[1])


def save(text: Coloured, path: Path) -> list[Path]:
    """`path`.html, and `path`.png and `path`.svg; the names of all."""
    figure, paths = figure_of(text), [path.with_name(f"{path.name}.{suffix}") for suffix in ("html", "png", "svg")]
    paths[0].write_text(html(text), encoding="utf-8")
    with boxes_untold():
        for one in paths[1:]:
            figure.savefig(one, dpi=140, facecolor="white")
    return paths
