"""Pictures of measurements: lines, bars and maps beside each other, as PNG and SVG. Drawn by matplotlib, which is an extra."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.errors import UserError
from regard.insight.fonts import fonts_for
from regard.insight.heatmap import labels, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe & Ito 2008: told apart by people who see fewer colours; markers and dashes tell the lines apart in grey
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS, DASHES = "osD^vP*", ("-", "--", "-.", ":")
ACROSS = 3  # panels side by side
NAMED = 8  # so many lengths stand below an axis of logarithms
LEGEND: dict[str, Any] = {
    "framealpha": 0.8,
    "edgecolor": "none",
    "borderpad": 0.2,
}  # lines behind it stay seen, and it readable


class Series(NamedTuple):
    """One line, or the bars of one colour; `spread` is a standard deviation on either side."""

    name: str
    x: Sequence[Any]
    y: Sequence[float | None]  # None: nothing was measured there
    spread: Sequence[float] | None = None
    marks: Sequence[str] | None = None  # written after the figure of each bar

    @property
    def values(self) -> Float[np.ndarray, "points"]:
        return np.array([np.nan if value is None else value for value in self.y], np.float64)


class Lines(NamedTuple):
    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False

    def draw(self, axes: Any) -> None:
        for number, one in enumerate(self.series):
            style = {"color": COLOURS[number % len(COLOURS)], "linestyle": DASHES[number // len(COLOURS) % len(DASHES)]}
            marker = MARKERS[number % len(MARKERS)] if len(one.x) <= 30 else ""
            axes.plot(one.x, one.values, marker=marker, markersize=4, linewidth=1.6, label=printable(one.name), **style)
            if one.spread is not None:
                low, high = one.values - np.array(one.spread), one.values + np.array(one.spread)
                axes.fill_between(one.x, low, high, alpha=0.15, color=style["color"], linewidth=0)
        if self.log_x:
            axes.set_xscale("log")
            places = sorted({x for one in self.series for x in one.x})
            if len(places) <= NAMED:  # names of powers of ten would hit each other
                axes.set_xticks(places, [f"{place:,}" for place in places])
                axes.minorticks_off()
        if self.log_y:
            axes.set_yscale("log")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7, ncols=1 + (len(self.series) > 8), **LEGEND)


class Bars(NamedTuple):
    """Groups of bars; the values of a series stand in the order of `series[0].x`, and each bar says its own."""

    title: str
    x: str
    y: str
    series: Sequence[Series]

    def draw(self, axes: Any) -> None:
        groups, width = list(self.series[0].x), 0.8 / len(self.series)
        for number, one in enumerate(self.series):
            places = np.arange(len(groups)) + (number - (len(self.series) - 1) / 2) * width
            style = {"color": COLOURS[number % len(COLOURS)], "edgecolor": "black", "linewidth": 0.5}
            bars = axes.bar(places, one.values, width, yerr=one.spread, capsize=2, label=printable(one.name), **style)
            if len(groups) * len(self.series) <= 24:
                figures = zip(one.y, one.marks or [""] * len(one.y), strict=True)
                told = ["" if value is None else f"{on_bar(value)}{mark}" for value, mark in figures]
                axes.bar_label(bars, told, fontsize=6, padding=1)
        names = labels(map(str, groups), 24)
        axes.set_xticks(range(len(groups)), names, fontsize=8, rotation=35 * (sum(map(len, names)) > 40), ha="center")
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
        if len(self.series) > 1:
            axes.legend(fontsize=7, **LEGEND)


class Map(NamedTuple):
    """A matrix as colours from blue over white to red, 0 being white; the bar tells what they mean."""

    title: str
    x: str
    y: str
    values: Float[np.ndarray, "rows columns"]

    def draw(self, axes: Any) -> None:
        most = float(np.abs(self.values).max()) or 1.0
        image = axes.imshow(self.values, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
        axes.figure.colorbar(image, ax=axes, shrink=0.8)
        for side in (axes.xaxis, axes.yaxis):  # rows and columns have whole numbers
            side.get_major_locator().set_params(integer=True, min_n_ticks=1)


Panel = Lines | Bars | Map


class Picture(NamedTuple):
    """Panels under one title, and below them what they were made with."""

    title: str
    panels: Sequence[Panel]
    caption: str = ""
    one_scale: bool = False  # whether all panels have the same y axis, so that their heights can be compared


def figure_of(picture: Picture) -> "Figure":
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("pictures need matplotlib: pip install 'regard[figures]'") from None
    across = min(ACROSS, len(picture.panels))
    down = -(-len(picture.panels) // across)
    figure = Figure(figsize=(max(4.6 * across, 6.4), 3.6 * down + 0.8), layout="constrained")
    style = {"fontfamily": fonts_for([picture.title])[0], "parse_math": False}
    width = int(figure.get_figwidth() * 11)  # characters of a line
    figure.suptitle("\n".join(wrap(printable(picture.title), width)), fontsize=11, **style)
    for place, panel in enumerate(picture.panels, start=1):
        axes = figure.add_subplot(down, across, place)
        panel.draw(axes)
        axes.set(xlabel=panel.x, ylabel=panel.y)
        axes.set_title(printable(panel.title), fontsize=9)
    if picture.one_scale:
        lows, highs = zip(*(axes.get_ylim() for axes in figure.axes), strict=True)
        for axes in figure.axes:
            axes.set_ylim(min(lows), max(highs))
    if picture.caption:
        figure.supxlabel(printable(picture.caption), fontsize=7, wrap=True, **style)
    return figure


def save(picture: Picture, path: Path) -> list[Path]:
    """As `path`.png and `path`.svg; the names of both."""
    figure, paths = figure_of(picture), [path.with_name(f"{path.name}.{suffix}") for suffix in ("png", "svg")]
    for one in paths:
        figure.savefig(one, dpi=120, facecolor="white")
    return paths


def on_bar(value: float) -> str:
    """Three digits, and thousands as people write them."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if 1e3 <= abs(rounded) < 1e6 else f"{rounded:.3g}"
