"""What a search finds."""

from typing import TYPE_CHECKING, NamedTuple

from jaxtyping import Float
from torch import Tensor

from regard.errors import UserError

if TYPE_CHECKING:
    from regard.decoding.reading import Alignment

# Why an output ended. Hypotheses name the key of the limit instead: `decoding.max_length` and its kin
END_MARK, LIMIT, ON_STEP = "end mark", "length limit", "on_step"


class Found(NamedTuple):
    """One output as tokens, without the end mark; `log_prob` counts the end mark where the output has one."""

    tokens: list[int]  # ids past the vocabulary stand for copied words that only the sentence's source knows
    log_prob: float
    score: float = 0.0  # what the search ranked by
    end: str = END_MARK
    token_scores: list[float] | None = (
        None  # log p of each token, and of the end mark where there is one: they add up to log_prob
    )
    looks: Float[Tensor, "steps source"] | None = None  # where the search looked when it wrote them


class Hypothesis(NamedTuple):
    """One decoded output."""

    text: str
    tokens: list[int]  # as in Found; `text` spells copied words out, which the ids alone do not tell
    log_prob: float
    score: float
    end: str = END_MARK  # why it ended: `end mark`, `on_step`, or the key of the limit that cut it
    token_scores: list[float] | None = None  # as in Found; if asked for
    alignment: "Alignment | None" = None  # where the search looked for each word; if asked for

    @property
    def cut(self) -> bool:
        """It has no end mark: it met a limit, or `on_step` ended it."""
        return self.end != END_MARK

    def __repr__(self) -> str:
        numbers = f"log_prob={self.log_prob:.4f}, score={self.score:.4f}"
        why = f", cut by {self.end}" if self.cut else ""
        return f"Hypothesis({self.text!r}, {len(self.tokens)} tokens, {numbers}{why})"


NO_NUMBER = "the model returned not-a-number: its weights are damaged or its training diverged"


def require_numbers(totals: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    if bool(totals.isnan().any()):
        raise UserError(NO_NUMBER)
    return totals
