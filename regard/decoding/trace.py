"""What a search saw at each step, kept only for those who ask: where it looked, how probable each word was."""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.hypothesis import Found

Look = Callable[[Float[Tensor, "rows heads source"]], Float[Tensor, "rows source"]]  # of one step: the head that is read


class Details(NamedTuple):
    """What hypotheses shall hold beside text, tokens and sums."""

    token_scores: bool = False
    alignment: bool = False


NONE = Details()


class Trace:
    """The steps of one search. What hypotheses share is kept once: each knows where it stood after its last step, and what
    stands anywhere knows the row that it continues (backpointers)."""

    def __init__(self, look: Look | None = None, token_scores: bool = True) -> None:
        self.look, self.token_scores = look, token_scores
        self.looks, self.log_probs, self.parents = list[Tensor](), list[Tensor](), list[Tensor]()

    def add(
        self,
        log_probs: Float[Tensor, "batch width vocabulary"],
        weights: Float[Tensor, "rows heads source"] | None,
        parents: Int[Tensor, "batch places"],
        words: Int[Tensor, "batch places"],
    ) -> None:
        """One step: what stands in a place continues one of the `width` rows of its sentence by a word. The last `width`
        places are the rows of the next step."""
        self.parents.append(parents)
        self.closed = parents.shape[1] - log_probs.shape[1]  # places before those of rows
        if self.token_scores:
            self.log_probs.append(log_probs[torch.arange(len(parents), device=parents.device)[:, None], parents, words])
        if self.look is not None and weights is not None:
            self.looks.append(self.look(weights).view(*log_probs.shape[:2], -1))

    @cached_property
    def history(self) -> tuple[list[Any], list[Any], Tensor | None]:
        """As numbers, once the search is over."""
        looks = torch.stack(self.looks).float().cpu() if self.looks else None
        return [step.tolist() for step in self.parents], [step.tolist() for step in self.log_probs], looks

    def describe(self, found: Found, length: int, sentence: int, place: int) -> Found:
        """With its steps: `length` of them, the last of which put it there."""
        (parents, log_probs, looks), rows, scores = self.history, list[int](), list[float]()
        for step in reversed(range(length)):
            if self.token_scores:
                scores.append(log_probs[step][sentence][place])
            rows.append(parents[step][sentence][place])
            place = rows[-1] + self.closed
        seen = None if looks is None else looks[torch.arange(length), sentence, rows[::-1]]
        return found._replace(token_scores=scores[::-1] if self.token_scores else None, looks=seen)
