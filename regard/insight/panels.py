"""Where a model looked in a picture: one panel for each word that it wrote, the attention laid over the picture."""

import base64
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from regard.errors import UserError
from regard.insight.fonts import advice, boxes_untold, fonts_for
from regard.insight.heatmap import labels, printable
from regard.insight.look import Look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACROSS = 5  # panels beside each other
GLOW = (255, 170, 0)
SHADES = " ·:+#@"  # of a terminal, from nothing to the panel's largest weight


class Panels(NamedTuple):
    """The picture as the model read it, the words, and for each of them the weight of every region of the picture."""

    picture: UInt8[np.ndarray, "height width channels"]
    words: list[str]
    weights: Float[np.ndarray, "words rows columns"]
    title: str = ""

    @property
    def maps(self) -> Float[np.ndarray, "words height width"]:
        """How strongly each pixel is looked at, 0 to 1 in each panel: weights of regions, between their middles by lines."""
        height, width, _ = self.picture.shape
        found = np.stack([stretched(stretched(one, height).T, width).T for one in self.weights.astype(np.float64)])
        largest = found.max(axis=(1, 2), keepdims=True)
        shades: Float[np.ndarray, "words height width"] = found / np.where(largest > 0, largest, 1.0)
        return shades


def stretched(cells: Float[np.ndarray, "cells other"], size: int) -> Float[np.ndarray, "size other"]:
    """Values at the middles of cells as values at the middles of pixels."""
    places = (np.arange(size) + 0.5) * len(cells) / size - 0.5
    low = np.clip(np.floor(places).astype(int), 0, len(cells) - 1)
    share = np.clip(places - low, 0, 1)[:, None]
    return np.asarray(cells[low] * (1 - share) + cells[np.minimum(low + 1, len(cells) - 1)] * share)


def draw_panels(panels: Panels) -> "Figure":
    """The picture as it is, and once more for each word."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("pictures need matplotlib: pip install 'regard[figures]'") from error
    height, width, channels = panels.picture.shape
    picture = np.repeat(panels.picture, 3, axis=2) if channels == 1 else panels.picture
    count, across = len(panels.words) + 1, min(ACROSS, len(panels.words) + 1)
    high = 1.9 * min(max(height / width, 0.25), 3.0)  # inches of a panel
    figure = Figure(figsize=(1.9 * across, (high + 0.32) * math.ceil(count / across) + 0.3), layout="constrained")
    fonts, _ = fonts_for([*panels.words, panels.title])
    views = [picture, *(laid_over(picture, shade[..., None]) for shade in panels.maps)]
    peaks = [f"{word}  {weights.max():.2f}" for word, weights in zip(labels(panels.words), panels.weights, strict=True)]
    for place, (view, name) in enumerate(zip(views, ["", *peaks], strict=True), start=1):
        axes = figure.add_subplot(math.ceil(count / across), across, place)
        axes.imshow(view, interpolation="nearest")
        axes.set_title(name, fontsize=10, fontfamily=fonts, parse_math=False)
        axes.set_axis_off()
    told = "; ".join(filter(None, [printable(panels.title), "beside a word the largest weight, which glows most"]))
    figure.suptitle(told, fontsize=8, fontfamily=fonts, parse_math=False)
    return figure


def laid_over(
    picture: UInt8[np.ndarray, "height width 3"], shade: Float[np.ndarray, "height width 1"]
) -> UInt8[np.ndarray, "height width 3"]:
    """Faint where the model did not look, and glowing where it did, whatever the picture's own colours are."""
    glowing = 0.55 * picture + 0.45 * np.array(GLOW)
    view: UInt8[np.ndarray, "height width 3"] = (shade * glowing + (1 - shade) * 0.55 * picture).astype(np.uint8)
    return view


def boxes(panels: Panels) -> str | None:
    """What to say where a word would be drawn as boxes."""
    return advice(fonts_for([*panels.words, panels.title])[1])


def saved(panels: Panels, form: str) -> bytes:
    file = io.BytesIO()
    with boxes_untold():
        draw_panels(panels).savefig(file, format=form, dpi=150, facecolor="white")
    return file.getvalue()


def page(panels: Panels) -> str:
    return page_of([panels])


def page_of(several: Sequence[Panels]) -> str:
    """One file that fetches nothing; where each word looked stands there as text too."""
    figures = "\n".join(map(page_figure, several))
    style = (
        ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem}"
        "img{max-width:100%;background:white}figure{margin:0 0 2rem}"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Where the model looked</title>\n'
        f"<style>{style}</style></head>\n<body><h1>Where the model looked</h1>\n{figures}\n</body></html>\n"
    )


def page_figure(panels: Panels) -> str:
    image, words = base64.b64encode(saved(panels, "png")).decode(), escape(" ".join(map(printable, panels.words)))
    title, items = escape(printable(panels.title)), "".join(f"<li>{escape(told)}</li>" for told in in_words(panels))
    return (
        f'<figure><figcaption>{title}</figcaption><p>{words}</p>\n<img alt="{words}" src="data:image/png;base64,{image}">\n'
        f"<details><summary>As text</summary><ul>{items}</ul></details></figure>"
    )


def in_words(panels: Panels) -> list[str]:
    """Where each word looked most, rows and columns of regions counted from 1."""
    _, rows, columns = panels.weights.shape
    places = [divmod(int(np.nan_to_num(one).argmax()), columns) for one in panels.weights]
    return [
        f"{printable(word)}: row {row + 1} of {rows}, column {column + 1} of {columns}, {weights[row, column]:.3f}"
        for word, weights, (row, column) in zip(panels.words, panels.weights, places, strict=True)
    ]


def terminal_panels(panels: Panels) -> str:
    """Each word and its regions, as characters: the darker, the more it was looked at."""
    drawn = []
    for word, weights in zip(panels.words, panels.weights, strict=True):
        shades = weights / max(float(weights.max(initial=0)), 1e-9) * (len(SHADES) - 1)
        lines = ["".join(SHADES[round(float(shade))] * 2 for shade in row) for row in np.nan_to_num(shades).clip(min=0)]
        drawn.append(
            "\n".join([f"{printable(word)} ({weights.max(initial=0):.2f} at the most)", *(f"  |{line}|" for line in lines)])
        )
    return "\n".join(drawn) + "\n"


PANEL_FORMATS: dict[str, Callable[[Panels, Path], object]] = {
    "png": lambda panels, path: path.write_bytes(saved(panels, "png")),
    "svg": lambda panels, path: path.write_bytes(saved(panels, "svg")),
    "pdf": lambda panels, path: path.write_bytes(saved(panels, "pdf")),
    "html": lambda panels, path: path.write_text(page(panels), encoding="utf-8"),
}


@dataclass(frozen=True, repr=False, eq=False)
class PictureLook(Look):
    """Of one picture, `text` being its name, and what was written of it; in the heatmap each region is a column."""

    panels: Panels = field(kw_only=True)

    def png(self, path: str | PathLike[str]) -> None:
        PANEL_FORMATS["png"](self.panels, Path(path))

    def pdf(self, path: str | PathLike[str]) -> None:
        PANEL_FORMATS["pdf"](self.panels, Path(path))

    def svg(self, path: str | PathLike[str]) -> None:
        PANEL_FORMATS["svg"](self.panels, Path(path))

    def html(self, path: str | PathLike[str]) -> None:
        PANEL_FORMATS["html"](self.panels, Path(path))

    def __repr__(self) -> str:
        return f"{self.output}\n\n{terminal_panels(self.panels)}"

    def _repr_html_(self) -> str:
        return page(self.panels)
