"""How hypotheses of different lengths are ranked: log p / norm(length), and a penalty for words that nobody looked at."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import UserError
from regard.tables import TABLES, choose

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


def normaliser(name: str, penalty: float) -> Callable[[int], float]:
    """What log p of an output of so many tokens is divided by."""
    normalise = choose(NORMALISATIONS, name, "normalisation of length")
    return lambda length: normalise(length, penalty)


def closed_enough(
    closed: Int[Tensor, "batch"], width: int, leader: Float[Tensor, "batch"], best: Float[Tensor, "batch"]
) -> Bool[Tensor, "batch"]:
    return closed < width


def none_leads(
    closed: Int[Tensor, "batch"], width: int, leader: Float[Tensor, "batch"], best: Float[Tensor, "batch"]
) -> Bool[Tensor, "batch"]:
    return (closed < width) | (leader > best)


def never(
    closed: Int[Tensor, "batch"], width: int, leader: Float[Tensor, "batch"], best: Float[Tensor, "batch"]
) -> Bool[Tensor, "batch"]:
    return torch.ones_like(closed, dtype=torch.bool)


# Which sentences go on: by how many hypotheses of each have closed, and the best scores of an open and of a closed one, if the
# open one were closed now. `first`: until as many have closed as the beam is wide. `best`: and until no open one leads.
# `last`: until every open one has ended or met its limit
STOPS: dict[str, Callable[[Tensor, int, Tensor, Tensor], Tensor]] = {
    "best": none_leads, "first": closed_enough, "last": never,
}  # fmt: skip
TABLES["stop rule"] = lambda: STOPS

# What log p is divided by; a length counts the end mark
NORMALISATIONS: dict[str, Callable[[int, float], float]] = {"power": power, "gnmt": gnmt}
TABLES["normalisation of length"] = lambda: NORMALISATIONS
