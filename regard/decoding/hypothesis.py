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


class Hypothesis(NamedTuple):
    """One decoded output."""

    text: str
    tokens: list[int]  # as in Found; `text` spells copied words out, which the ids alone do not tell
    log_prob: float
    score: float


def require_numbers(totals: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    if bool(totals.isnan().any()):
        raise UserError("the model returned not-a-number: its weights are damaged or its training diverged")
    return totals
