"""How hypotheses of different lengths are ranked: log p / norm(length), and a penalty for words that nobody looked at."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from regard.errors import UserError
from regard.tables import TABLES

UNSEEN = 1e-9  # what a word that was never looked at counts as: sparse weights would make every hypothesis impossible


class Coverage(NamedTuple):
    """β Σ_j log min(Σ_i α_ij, 1), over the source positions j that are there  (Wu et al. 2016, eq. 14)."""

    penalty: float  # β
    visible: Bool[Tensor, "batch source"]

    def start(self, width: int) -> Float[Tensor, "rows source"]:
        """Σ_i α_ij before the first step; 1 where there is nothing to look at."""
        return (~self.visible).float().repeat_interleave(width, dim=0)

    def add(
        self, seen: Float[Tensor, "rows source"], weights: Float[Tensor, "rows heads source"] | None
    ) -> Float[Tensor, "rows source"]:
        if weights is None:
            raise UserError("a coverage penalty asks where the model looked, and this one has no attention to tell")
        return seen + weights.float().mean(dim=1)

    def score(self, seen: Float[Tensor, "rows source"]) -> Float[Tensor, "rows"]:
        return self.penalty * seen.clamp(UNSEEN, 1.0).log().sum(dim=-1)


def power(length: int, penalty: float) -> float:
    """|Y|^α"""
    return float(length**penalty)


def gnmt(length: int, penalty: float) -> float:
    """(5 + |Y|)^α / (5 + 1)^α  (Wu et al. 2016, eq. 14)."""
    return float(((5 + length) / (5 + 1)) ** penalty)


# What log p is divided by; a length counts the end mark
NORMALISATIONS: dict[str, Callable[[int, float], float]] = {"power": power, "gnmt": gnmt}
TABLES["normalisation of length"] = lambda: NORMALISATIONS
