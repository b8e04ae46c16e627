"""What a search finds."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError


class Found(NamedTuple):
    """One output as tokens, without the end mark; `log_prob` counts the end mark where the output has one."""

    tokens: list[int]  # ids past the vocabulary stand for copied words that only the sentence's source knows
    log_prob: float
    score: float = 0.0  # what the search ranked by
    cut: bool = False  # it has no end mark: it met its length limit, or `on_step` ended it


class Hypothesis(NamedTuple):
    """One decoded output."""

    text: str
    tokens: list[int]  # as in Found; `text` spells copied words out, which the ids alone do not tell
    log_prob: float
    score: float
    cut: bool = False  # as in Found

    def __repr__(self) -> str:
        numbers = f"log_prob={self.log_prob:.4f}, score={self.score:.4f}"
        return f"Hypothesis({self.text!r}, {len(self.tokens)} tokens, {numbers}{', cut' if self.cut else ''})"


def require_numbers(totals: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    if bool(totals.isnan().any()):
        raise UserError("the model returned not-a-number: its weights are damaged or its training diverged")
    return totals
