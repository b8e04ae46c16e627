"""Heatmaps as files. PNG and PDF are drawn by matplotlib; SVG by `drawing`, HTML by `page`."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard.errors import UserError
from regard.insight.drawing import EDGE, GOLD, svg
from regard.insight.fonts import advice, boxes_untold, fonts_for
from regard.insight.heatmap import GOLD_TOLD, STRONG, Heatmap, Sheet, digits, labels, longest, printable, sheet_of
from regard.insight.page import html

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST = 12  # inches
LARGEST_CELL = 0.34
SMALLEST = 4  # points of a letter
NUMBERED = 30  # up to so many words a side, cells carry their weights in digits


def save(form: str, picture: Heatmap | Sheet, path: Path) -> None:
    """By matplotlib; characters that no installed font has are drawn as boxes, of which `boxes` tells."""
    figure = draw_figure(picture)
    dated: dict[str, Any] = {"metadata": {"CreationDate": None}} if form == "pdf" else {}  # the same bytes tomorrow
    with boxes_untold():
        figure.savefig(path, format=form, dpi=150, bbox_inches="tight", pad_inches=0.15, facecolor="white", **dated)


png, pdf = partial(save, "png"), partial(save, "pdf")


class Place(NamedTuple):
    """Where the cells of one heatmap stand, in inches from the left and from the top; which words are named beside them."""

    heatmap: Heatmap
    left: float
    top: float
    rows_named: bool
    columns_named: bool


def draw_figure(picture: Heatmap | Sheet) -> "Figure":
    """Cells have a known size; saving with a tight box adds the words around them."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("PNG and PDF need matplotlib: pip install 'regard[figures]'; SVG and HTML do not") from error

    sheet = sheet_of(picture)
    cell = size_of_cells(sheet)
    fonts, _ = fonts_for(texts_of(sheet))
    style: dict[str, Any] = {"fontsize": max(min(10, cell * 40), SMALLEST), "fontfamily": fonts, "parse_math": False}
    places = list(placed(sheet, cell, style["fontsize"] / 120))
    width = max(one.left + cell * max(len(one.heatmap.source), 1) for one in places)
    height = max(one.top + cell * max(len(one.heatmap.target), 1) for one in places)
    figure = Figure(figsize=(width, height))
    for one in places:
        draw_place(figure, one, cell, style)
    draw_scale(figure, sheet, style)
    if sheet.title:
        figure.text(0.5, 1 + 0.1 / height, printable(sheet.title), ha="center", va="bottom", **style | {"fontsize": 12})
    return figure


def size_of_cells(sheet: Sheet) -> float:
    """In inches: long sentences get small cells, not huge files."""
    rows = [sheet.heatmaps[start : start + sheet.across] for start in range(0, len(sheet.heatmaps), sheet.across)]
    longer = max(max(sum(len(one.source) for one in row), *(len(one.target) for one in row)) for row in rows)
    return min(LARGEST_CELL, WIDEST / max(longer, 1))


def placed(sheet: Sheet, cell: float, letter: float) -> Iterator[Place]:
    """In rows; words that the neighbour to the left, or the one above, names already are not named again."""
    top, some = 0.0, sheet.heatmaps
    leaning = letter * max(longest(labels(one.source)) for one in some) / 3  # slanted words lean over the right edge
    for start in range(0, len(some), sheet.across):
        row = range(start, min(start + sheet.across, len(some)))
        above = [start >= sheet.across and some[at].source == some[at - sheet.across].source for at in row]
        beside = [at > start and some[at].target == some[at - 1].target for at in row]
        named = max(
            (letter * longest(labels(some[at].source)) for at, known in zip(row, above, strict=True) if not known), default=0
        )
        titled, left = 0.5 * any(some[at].title for at in row), 0.0
        top += (0.9 * named + 0.15 + titled) * (len(some) > 1)
        for at, over, known in zip(row, above, beside, strict=True):
            left += (0.15 if known else 0.2 + letter * longest(labels(some[at].target))) * (len(some) > 1)
            yield Place(some[at], left, top, not known, not over)
            left += cell * len(some[at].source) + leaning
        top += cell * max(len(some[at].target) for at in row) + 0.1


def draw_place(figure: "Figure", place: Place, cell: float, style: dict[str, Any]) -> None:
    columns, rows = max(len(place.heatmap.source), 1), max(len(place.heatmap.target), 1)
    wide, high = figure.get_size_inches()
    corner = place.left / wide, 1 - (place.top + cell * rows) / high
    limits: dict[str, Any] = {"xlim": (-0.5, columns - 0.5), "ylim": (rows - 0.5, -0.5)}
    axes = figure.add_axes((*corner, cell * columns / wide, cell * rows / high), **limits)
    draw_weights(axes, place.heatmap, style)
    draw_gold(axes, place.heatmap)
    label_axes(axes, place, style, None if place.left == place.top == 0 else columns * cell)


def texts_of(sheet: Sheet) -> list[str]:
    each = [text for one in sheet.heatmaps for text in (*labels(one.source), *labels(one.target), printable(one.title))]
    return [*each, printable(sheet.title)]


def boxes(picture: Heatmap | Sheet) -> str | None:
    """What to say where a PNG or a PDF would show boxes instead of characters."""
    return advice(fonts_for(texts_of(sheet_of(picture)))[1])


def draw_scale(figure: "Figure", sheet: Sheet, style: dict[str, Any]) -> None:
    """A colour bar below the cells, 0 to 1 in every picture: a shade means the same in all of them."""
    wide, high = figure.get_size_inches()
    left, peak = figure.axes[0].get_position().x0, max(one.peak for one in sheet.heatmaps)
    bar = figure.add_axes((left, -0.3 / high, min(1, 1.6 / wide), 0.1 / high))
    bar.imshow(np.linspace(0, 1, 64)[None], cmap="Blues", vmin=0, vmax=1, aspect="auto", extent=(0, peak, 0, 1))
    bar.set_yticks([])
    bar.set_xticks([0, peak], [f"{end:g}" for end in (0, peak)], **style | {"fontsize": 7})
    bar.tick_params(length=0, pad=2)
    bar.spines[:].set_color(EDGE)
    if any(one.gold | one.possible for one in sheet.heatmaps):
        figure.text(left + 1.75 / wide, -0.3 / high, GOLD_TOLD, color=GOLD, **style | {"fontsize": 7})


def draw_weights(axes: Any, heatmap: Heatmap, style: dict[str, Any]) -> None:
    shades = heatmap.shades
    if shades.size:
        axes.imshow(shades, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if max(shades.shape) > NUMBERED or style["fontsize"] < 10:
        return
    for row, column in zip(*shades.nonzero(), strict=True):
        color = "white" if shades[row, column] > STRONG else "black"
        text = digits(float(float(heatmap.weights[row, column])))
        axes.text(column, row, text, ha="center", va="center", color=color, **style | {"fontsize": 7})


def draw_gold(axes: Any, heatmap: Heatmap) -> None:
    """True links as outlines; those that are not sure have dashes."""
    for column, row in sorted(heatmap.gold | heatmap.possible):
        dashes = "solid" if (column, row) in heatmap.gold else "dashed"
        corners = ([column + side * 0.42 for side in (-1, 1, 1, -1, -1)], [row + side * 0.42 for side in (-1, -1, 1, 1, -1)])
        axes.plot(*corners, color=GOLD, linewidth=1.5, linestyle=dashes)


def label_axes(axes: Any, place: Place, style: dict[str, Any], room: float | None) -> None:
    """`room`: inches that its title may be wide, where others stand beside it."""
    slant = {"rotation": 60, "ha": "left", "va": "center", "rotation_mode": "anchor"}
    heatmap = place.heatmap
    axes.xaxis.tick_top()
    step = math.ceil(1.2 * SMALLEST / 72 * max(heatmap.weights.shape, default=1) / WIDEST) or 1  # names that have room
    columns, rows = (range(0, len(side), step) for side in (heatmap.source, heatmap.target))
    axes.set_xticks(
        columns if place.columns_named else [], labels(heatmap.source[::step]) * place.columns_named, **slant, **style
    )
    axes.set_yticks(rows if place.rows_named else [], labels(heatmap.target[::step]) * place.rows_named, **style)
    axes.tick_params(length=0, pad=4)
    axes.spines[:].set_color(EDGE)
    if heatmap.title:
        title = printable(heatmap.title)
        title = title if room is None else "\n".join(wrap(title, max(int(room * 14), 12)))
        axes.set_title(title, pad=12 if place.columns_named else 4, **style | {"fontsize": 11 if room is None else 9})


FORMATS: dict[str, Callable[[Heatmap | Sheet, Path], None]] = {"png": png, "pdf": pdf, "svg": svg, "html": html}
