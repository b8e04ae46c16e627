"""Heatmaps as files: PNG by matplotlib, SVG by hand, HTML by `page`."""

import math
import warnings
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard.errors import UserError
from regard.insight.fonts import advice, fonts_for
from regard.insight.heatmap import STRONG, Heatmap, digits, labels, longest, printable, tell
from regard.insight.page import html

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#08519c"
WIDEST = 12  # inches
SMALLEST = 4  # points of a letter
NUMBERED = 30  # up to so many words a side, cells carry their weights in digits


def png(heatmap: Heatmap, path: Path) -> None:
    """A bitmap, by matplotlib; characters that no installed font has are drawn as boxes, of which `boxes` tells."""
    figure = draw_figure(heatmap.whole)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*[Gg]lyph.*")
        warnings.filterwarnings("ignore", message=".*does not support .* natively.*")
        figure.savefig(path, format="png", dpi=150, bbox_inches="tight", pad_inches=0.15, facecolor="white")


def draw_figure(heatmap: Heatmap) -> "Figure":
    """The axes fill the figure, so that cells have a known size; saving with a tight box adds the words around them."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("PNG pictures need matplotlib: pip install 'regard[figures]'; SVG and HTML do not") from error

    columns, rows = max(len(heatmap.source), 1), max(len(heatmap.target), 1)
    cell = min(0.34, WIDEST / max(columns, rows))  # inches; long sentences get small cells, not huge files
    figure = Figure(figsize=(columns * cell, rows * cell))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    fonts, _ = fonts_for(texts_of(heatmap))
    style: dict[str, Any] = {"fontsize": max(min(10, cell * 40), SMALLEST), "fontfamily": fonts, "parse_math": False}
    draw_weights(axes, heatmap, style)
    draw_scale(figure, heatmap, style)
    label_axes(axes, heatmap, style)
    return figure


def texts_of(heatmap: Heatmap) -> list[str]:
    return [*labels(heatmap.source), *labels(heatmap.target), printable(heatmap.title)]


def boxes(heatmap: Heatmap) -> str | None:
    """What to say where a PNG would show boxes instead of characters."""
    return advice(fonts_for(texts_of(heatmap))[1])


def draw_scale(figure: "Figure", heatmap: Heatmap, style: dict[str, Any]) -> None:
    """A colour bar below the cells, 0 to 1 in every picture: a shade means the same in all of them."""
    wide, high = figure.get_size_inches()
    bar = figure.add_axes((0, -0.3 / high, min(1, 1.6 / wide), 0.1 / high))
    bar.imshow(np.linspace(0, 1, 64)[None], cmap="Blues", vmin=0, vmax=1, aspect="auto", extent=(0, heatmap.peak, 0, 1))
    bar.set_yticks([])
    ends = [0, heatmap.peak]
    bar.set_xticks(ends, [f"{end:g}" for end in ends], **style | {"fontsize": 7})
    bar.tick_params(length=0, pad=2)
    bar.spines[:].set_color("#c6dbef")


def draw_weights(axes: Any, heatmap: Heatmap, style: dict[str, Any]) -> None:
    shades = heatmap.shades
    if shades.size:
        axes.imshow(shades, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if max(shades.shape) > NUMBERED:
        return
    for row, column in zip(*shades.nonzero(), strict=True):
        color = "white" if shades[row, column] > STRONG else "black"
        text = digits(float(float(heatmap.weights[row, column])))
        axes.text(column, row, text, ha="center", va="center", color=color, **style | {"fontsize": 7})


def label_axes(axes: Any, heatmap: Heatmap, style: dict[str, Any]) -> None:
    slant = {"rotation": 60, "ha": "left", "va": "center", "rotation_mode": "anchor"}
    axes.xaxis.tick_top()
    step = math.ceil(1.2 * SMALLEST / 72 * max(heatmap.weights.shape, default=1) / WIDEST) or 1  # names that have room
    axes.set_xticks(range(0, len(heatmap.source), step), labels(heatmap.source[::step]), **slant, **style)
    axes.set_yticks(range(0, len(heatmap.target), step), labels(heatmap.target[::step]), **style)
    axes.tick_params(length=0, pad=4)
    axes.spines[:].set_color("#c6dbef")
    if heatmap.title:
        axes.set_title(printable(heatmap.title), pad=12, **style | {"fontsize": 11})


def svg(heatmap: Heatmap, path: Path) -> None:
    """A drawing that scales, and tells each weight to a hovering mouse."""
    path.write_text(draw_svg(heatmap), encoding="utf-8")


class Frame(NamedTuple):
    """Where the cells of an SVG stand: the corner of the first one, and how large each is."""

    left: int
    top: int
    cell: int = 28


def draw_svg(heatmap: Heatmap) -> str:
    heatmap = heatmap.whole
    source, target, title = labels(heatmap.source), labels(heatmap.target), escape(printable(heatmap.title))
    slanted = 7 * longest(source)
    frame = Frame(left=20 + 8 * longest(target), top=(48 if title else 20) + slanted)
    leaning = frame.left + frame.cell * len(source) + slanted // 2 + 12  # slanted words lean over the right edge
    width = max(leaning, 24 + 9 * longest([heatmap.title]))
    height = frame.top + frame.cell * len(target) + 36
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">\n'
        f"<title>{title or 'attention weights'}</title>\n"
        f'<rect width="{width}" height="{height}" fill="white"/>\n'
        f'<text x="12" y="26" font-size="15">{title}</text>\n'
        f"{svg_words(source, target, frame)}\n{svg_cells(heatmap, source, target, frame)}\n"
        f"{svg_scale(heatmap.peak, frame.left, height - 18)}\n</svg>\n"
    )


def svg_scale(peak: float, left: int, top: int) -> str:
    """0 to 1 in every picture: a shade means the same in all of them."""
    steps = [f'<rect x="{14 + 12 * step}" width="12" height="10" fill-opacity="{step / 8}"/>' for step in range(9)]
    ends = f'<text y="10" font-size="11">0</text><text x="128" y="10" font-size="11">{peak:g}</text>'
    return f'<g class="scale" transform="translate({left} {top})">{ends}<g fill="{INK}">{"".join(steps)}</g></g>'


def svg_words(source: Sequence[str], target: Sequence[str], frame: Frame) -> str:
    left, top, cell = frame
    middle = cell // 2
    over = [
        f'<text transform="translate({left + column * cell + middle + 4} {top - 6}) rotate(-60)">{escape(word)}</text>'
        for column, word in enumerate(source)
    ]
    beside = [
        f'<text x="{left - 8}" y="{top + row * cell + middle + 5}" text-anchor="end">{escape(word)}</text>'
        for row, word in enumerate(target)
    ]
    return "\n".join(over + beside)


def svg_cells(heatmap: Heatmap, source: Sequence[str], target: Sequence[str], frame: Frame) -> str:
    """The cells, each with the weight in words for a hovering mouse; faint lines keep the empty ones apart."""
    left, top, cell = frame
    lines = []
    for (row, column), shade in np.ndenumerate(heatmap.shades):
        corner = f'x="{left + column * cell}" y="{top + row * cell}" width="{cell}" height="{cell}"'
        told = escape(tell(source[column], target[row], float(heatmap.weights[row, column])))
        lines.append(f'<rect class="cell" {corner} fill-opacity="{shade:.3f}"><title>{told}</title></rect>')
    return "\n".join([f'<g fill="{INK}" stroke="#c6dbef" stroke-width="0.5">', *lines, "</g>"])


FORMATS: dict[str, Callable[[Heatmap, Path], None]] = {"png": png, "svg": svg, "html": html}
