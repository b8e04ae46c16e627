"""All experiments that are called in one way, `regard lab NAME`. Their modules need torch and are imported when they run."""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from regard.lab.experiment import Experiment


class Entry(NamedTuple):
    module: str  # whose EXPERIMENT it is
    about: str
    lecture: str  # whose figures or claims it makes again

    @property
    def experiment(self) -> "Experiment":
        found: Experiment = import_module(self.module).EXPERIMENT
        return found


EXPERIMENTS: dict[str, Entry] = {
    "bottleneck": Entry(
        "regard.lab.bottleneck",
        "Quality by the length of the source, with attention and without it, with as many parameters",
        "001 Motivation; 002 The Bottleneck Problem; 003 Shortcoming; 004 Issue with Recurrent Models",
    ),
    "gradients": Entry(
        "regard.lab.gradients",
        "|dL/dh_t| through time for each cell, read from the last state or by attention",
        "000 Revenge of the vanishing gradients; 004 Vanishing Gradients",
    ),
    "complexity": Entry(
        "regard.lab.complexity",
        "Measured time and memory against lengths, with fitted exponents",
        "003 Summary (l1 + l2, l1 l2); 001 Why transformers? (n²)",
    ),
    "positions": Entry(
        "regard.lab.positions",
        "Pictures of positional encodings: how alike two places look",
        "001 Positional encoding",
    ),
}
