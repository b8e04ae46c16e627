"""Heatmaps as SVG, written by hand: text stays text, and each cell tells its weight to a hovering mouse."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from regard.data.links import links_from_weights
from regard.insight.heatmap import GOLD_TOLD, Heatmap, Sheet, labels, longest, printable, sheet_of, tell

INK, GOLD, EDGE = "#08519c", "#b45309", "#c6dbef"
LETTER = 8  # the width of a letter, on average


def svg(picture: Heatmap | Sheet, path: Path) -> None:
    """Line by line: the whole of a large one would stand in memory several times."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in svg_lines(picture))


class Frame(NamedTuple):
    """Where the cells of an SVG stand: the corner of the first one, and how large each is."""

    left: int
    top: int
    cell: int = 28


class Drawing(NamedTuple):
    width: int
    height: int
    lines: Iterator[str]


def draw_svg(picture: Heatmap | Sheet) -> str:
    return "\n".join([*svg_lines(picture), ""])


def svg_lines(picture: Heatmap | Sheet) -> Iterator[str]:
    """One heatmap as it is; several in rows, under a title."""
    sheet = sheet_of(picture)
    drawings, top, wide = [draw(one) for one in sheet.heatmaps], 40 if sheet.title else 0, 0
    placed = list[tuple[Drawing, int, int]]()
    for start in range(0, len(drawings), sheet.across):
        left, row = 0, drawings[start : start + sheet.across]
        for one in row:
            placed.append((one, left, top))
            left += one.width
        top, wide = top + max(one.height for one in row), max(wide, left)
    named = escape(printable(sheet.title or sheet.heatmaps[0].title)) or "attention weights"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {top}" width="{wide}" height="{top}" role="img" '
        'aria-labelledby="name told" font-family="sans-serif" font-size="13">\n'
        f'<title id="name">{named}</title>\n<desc id="told">{escape(in_words(sheet))}</desc>\n'
        f'<rect width="{wide}" height="{top}" fill="white"/>'
    )
    if sheet.title:
        yield f'<text x="12" y="26" font-size="17">{escape(printable(sheet.title))}</text>'
    for one, left, down in placed:
        yield f'<g transform="translate({left} {down})">'
        yield from one.lines
        yield "</g>"
    yield "</svg>"


def in_words(sheet: Sheet) -> str:
    """What each row looks at most, for readers of text."""
    told = []
    for one in sheet.heatmaps:
        looks = sorted((row, column) for column, row in links_from_weights(np.nan_to_num(one.weights)))
        said = ", ".join(tell(one.source[column], one.target[row], float(one.weights[row, column])) for row, column in looks)
        told.append(f"{one.title}: {said}" if one.title else said)
    return printable("; ".join(told))


def draw(heatmap: Heatmap) -> Drawing:
    source, target, title = labels(heatmap.source), labels(heatmap.target), escape(printable(heatmap.title))
    slanted = 7 * longest(source)
    frame = Frame(left=20 + LETTER * longest(target), top=(48 if title else 20) + slanted)
    leaning = frame.left + frame.cell * len(source) + slanted // 2 + 12  # slanted words lean over the right edge
    width = max(leaning, 24 + 9 * longest([heatmap.title]))
    height = frame.top + frame.cell * len(target) + 36
    heading, words = f'<text x="12" y="26" font-size="15">{title}</text>', svg_words(source, target, frame)
    cells = svg_cells(heatmap, heatmap.shades, (source, target), frame)
    around = [svg_gold(heatmap, frame), svg_scale(heatmap, frame.left, height - 18)]
    return Drawing(width, height, filter(None, chain([heading, words], cells, around)))


def svg_scale(heatmap: Heatmap, left: int, top: int) -> str:
    """0 to 1 in every picture: a shade means the same in all of them."""
    steps = "".join(f'<rect x="{14 + 12 * step}" width="12" height="10" fill-opacity="{step / 8}"/>' for step in range(9))
    ends = f'<text y="10" font-size="11">0</text><text x="128" y="10" font-size="11">{heatmap.peak:g}</text>'
    gold = f'<text x="150" y="10" font-size="11" fill="{GOLD}">{GOLD_TOLD}</text>' if heatmap.gold | heatmap.possible else ""
    return f'<g class="scale" transform="translate({left} {top})">{ends}<g fill="{INK}" stroke="{EDGE}">{steps}</g>{gold}</g>'


def svg_gold(heatmap: Heatmap, frame: Frame) -> str:
    """True links as outlines; those that are not sure have dashes."""
    if not heatmap.gold | heatmap.possible:
        return ""
    inset = frame.cell - 4
    lines = [f'<g class="gold" fill="none" stroke="{GOLD}" stroke-width="2">']
    for column, row in sorted(heatmap.gold | heatmap.possible):
        corner = f'x="{frame.left + column * frame.cell + 2}" y="{frame.top + row * frame.cell + 2}"'
        dashes = "" if (column, row) in heatmap.gold else ' stroke-dasharray="4 3"'
        lines.append(f'<rect {corner} width="{inset}" height="{inset}"{dashes}/>')
    return "\n".join([*lines, "</g>"])


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


def svg_cells(
    heatmap: Heatmap, shades: Float[np.ndarray, "target source"], sides: tuple[Sequence[str], Sequence[str]], frame: Frame
) -> Iterator[str]:
    """The cells, each with the weight in words for a hovering mouse; faint lines keep the empty ones apart."""
    (source, target), (left, top, cell) = sides, frame
    yield f'<g fill="{INK}" stroke="{EDGE}" stroke-width="0.5">'
    for (row, column), shade in np.ndenumerate(shades):
        corner = f'x="{left + column * cell}" y="{top + row * cell}" width="{cell}" height="{cell}"'
        told = escape(tell(source[column], target[row], float(heatmap.weights[row, column])))
        yield f'<rect class="cell" {corner} fill-opacity="{shade:.3f}"><title>{told}</title></rect>'
    yield "</g>"
