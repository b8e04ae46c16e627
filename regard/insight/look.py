"""Where a model looked, as a value that draws itself: on a terminal, in a notebook, into a file."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.insight import figure
from regard.insight.drawing import draw_svg, svg
from regard.insight.heatmap import Heatmap, Sheet
from regard.insight.maps import AttentionMap, View, heads_of, view
from regard.insight.page import PageFigure, html, write_page
from regard.insight.terminal import terminal

ACROSS = 4  # looks beside each other; more of them would have no room for their words


class Chance(NamedTuple):
    """How probable one token of an output was at its step."""

    token: str
    word: int  # its place in what was written; one past the last is the end mark
    probability: float
    alternatives: list[tuple[str, float]]  # the most probable tokens of that step


class Candidate(NamedTuple):
    """An output that the beam found."""

    text: str
    log_prob: float


def drawn(heatmap: Heatmap) -> dict[str, Any]:
    return {"source": heatmap.source, "target": heatmap.target, "weights": heatmap.weights.astype(float).round(6).tolist()}


@dataclass(frozen=True, repr=False, eq=False)
class Look:
    """Of one text and its output: `weights[i, j]` is how much of its attention `target[i]` had for `source[j]`."""

    text: str
    output: str
    heatmap: Heatmap
    maps: Sequence[AttentionMap] = ()  # every head of every attention
    chances: Sequence[Chance] = ()
    candidates: Sequence[Candidate] = ()

    def view(self, kind: str | None = None, layer: int | None = None, head: int | None = None, rollout: bool = False) -> "Look":
        """The same with another of its maps as the picture: one head, or the mean of those that are not told apart."""
        return replace(self, heatmap=view(self.maps, View(kind, layer, head, rollout)).heatmap)

    def against(self, sure: Iterable[tuple[int, int]], possible: Iterable[tuple[int, int]] = ()) -> "Look":
        """The same with true links, (source, target) counted from 0, as outlines."""
        true, perhaps = frozenset(sure), frozenset(possible)

        def outlined(heatmap: Heatmap) -> Heatmap:
            return heatmap._replace(gold=true, possible=perhaps - true)

        told = [one._replace(heatmap=outlined(one.heatmap)) if one.kind == "cross" else one for one in self.maps]
        return replace(self, heatmap=outlined(self.heatmap), maps=told)

    def grid(self, kind: str | None = None) -> Sheet:
        """Every head of every layer: a row for each layer."""
        heads = heads_of(self.maps, kind)
        layers = [one.layer for one in heads]
        where, what = heads[0].heatmap.title.partition(": ")[0], heads[0].told
        named = [one.heatmap._replace(title=f"layer {one.layer}, head {one.head}") for one in heads]
        return Sheet(named, max(map(layers.count, layers)), f"{where}: {what}, every head")

    @property
    def source(self) -> list[str]:
        return self.heatmap.source

    @property
    def target(self) -> list[str]:
        return self.heatmap.target

    @property
    def weights(self) -> Float[np.ndarray, "target source"]:
        return self.heatmap.weights

    @property
    def page_figure(self) -> PageFigure:
        return PageFigure(self.heatmap, self.maps, self.chances, self.candidates)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for programs."""
        seen = self.heatmap.whole
        return {
            "text": self.text, "output": self.output, "title": seen.title, **drawn(seen),
            "gold": sorted(map(list, seen.gold)), "possible": sorted(map(list, seen.possible)),
            "chances": [one._asdict() for one in self.chances],
            "candidates": [one._asdict() for one in self.candidates],
            "maps": [
                {"kind": one.kind, "layer": one.layer, "head": one.head, "rollout": one.rollout, **drawn(one.heatmap)}
                for one in self.maps
            ],
        }  # fmt: skip

    def png(self, path: str | PathLike[str]) -> None:
        """A bitmap; needs matplotlib, and fonts that have the characters."""
        warn_of_boxes(self.heatmap)
        figure.png(self.heatmap, Path(path))

    def pdf(self, path: str | PathLike[str]) -> None:
        """The same as a drawing that scales, for papers."""
        warn_of_boxes(self.heatmap)
        figure.pdf(self.heatmap, Path(path))

    def svg(self, path: str | PathLike[str]) -> None:
        """A drawing that scales."""
        svg(self.heatmap, Path(path))

    def html(self, path: str | PathLike[str]) -> None:
        """A page on which words can be pointed at."""
        html([self.page_figure], Path(path))

    def __repr__(self) -> str:
        return f"{self.output}\n\n{terminal(self.heatmap, color=False)}"

    def _repr_html_(self) -> str:
        """For notebooks: the drawing alone, for the styles of a page would reach the notebook around it."""
        return draw_svg(self.heatmap)


def warn_of_boxes(picture: Heatmap | Sheet) -> None:
    if (told := figure.boxes(picture)) is not None:
        warnings.warn(told, stacklevel=3)


@dataclass(frozen=True, repr=False, eq=False)
class SideBySide:
    """Looks of several models, or of one as it learned, at the same text and output."""

    looks: Sequence[Look]

    @property
    def sheet(self) -> Sheet:
        return Sheet([one.heatmap for one in self.looks], min(len(self.looks), ACROSS))

    def png(self, path: str | PathLike[str]) -> None:
        warn_of_boxes(self.sheet)
        figure.png(self.sheet, Path(path))

    def pdf(self, path: str | PathLike[str]) -> None:
        warn_of_boxes(self.sheet)
        figure.pdf(self.sheet, Path(path))

    def svg(self, path: str | PathLike[str]) -> None:
        svg(self.sheet, Path(path))

    def html(self, path: str | PathLike[str]) -> None:
        write_page([[one.page_figure for one in self.looks]], Path(path))

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.looks))

    def _repr_html_(self) -> str:
        return draw_svg(self.sheet)
