"""Where a model looked, as a value that draws itself: on a terminal, in a notebook, into a file."""

import warnings
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from jaxtyping import Float

from regard.insight import figure
from regard.insight.heatmap import Heatmap
from regard.insight.page import html
from regard.insight.terminal import terminal


@dataclass(frozen=True, repr=False, eq=False)
class Look:
    """Of one text and its output: `weights[i, j]` is how much of its attention `target[i]` had for `source[j]`."""

    text: str
    output: str
    heatmap: Heatmap

    @property
    def source(self) -> list[str]:
        return self.heatmap.source

    @property
    def target(self) -> list[str]:
        return self.heatmap.target

    @property
    def weights(self) -> Float[np.ndarray, "target source"]:
        return self.heatmap.weights

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
        html(self.heatmap, Path(path))

    def __repr__(self) -> str:
        return f"{self.output}\n\n{terminal(self.heatmap, color=False)}"

    def _repr_html_(self) -> str:
        """For notebooks: the drawing alone, for the styles of a page would reach the notebook around it."""
        return figure.draw_svg(self.heatmap)
