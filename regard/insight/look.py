"""Where a model looked, as a value that draws itself: on a terminal, in a notebook, into a file."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from regard.insight import figure
from regard.insight.heatmap import Heatmap
from regard.insight.maps import AttentionMap, View, view
from regard.insight.page import PageFigure, html
from regard.insight.terminal import terminal


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
            "chances": [one._asdict() for one in self.chances],
            "candidates": [one._asdict() for one in self.candidates],
            "maps": [
                {"kind": one.kind, "layer": one.layer, "head": one.head, "rollout": one.rollout, **drawn(one.heatmap)}
                for one in self.maps
            ],
        }  # fmt: skip

    def png(self, path: str | PathLike[str]) -> None:
        """A bitmap; needs matplotlib, and fonts that have the characters."""
        if (told := figure.boxes(self.heatmap)) is not None:
            warnings.warn(told, stacklevel=2)
        figure.png(self.heatmap, Path(path))

    def svg(self, path: str | PathLike[str]) -> None:
        """A drawing that scales."""
        figure.svg(self.heatmap, Path(path))

    def html(self, path: str | PathLike[str]) -> None:
        """A page on which words can be pointed at."""
        html([self.page_figure], Path(path))

    def __repr__(self) -> str:
        return f"{self.output}\n\n{terminal(self.heatmap, color=False)}"

    def _repr_html_(self) -> str:
        """For notebooks: the drawing alone, for the styles of a page would reach the notebook around it."""
        return figure.draw_svg(self.heatmap)
