"""Strides on a GPU by few kernels: a decoder's own (`engine/device.py`), and words chosen from logits where they lie."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int
from torch import Tensor

from regard.decoding.beam import Beam, BeamSearch, parted
from regard.decoding.greedy import GreedyProgress, Place
from regard.decoding.rules import SearchStep
from regard.models.interface import StepFunction
from regard.nn.kernels.steps.words import GreedyRows, best_words, step_greedily

KEPT = {"max_length", "min_length"}  # the rules that kernels keep


@dataclass(frozen=True)
class FusedBeam(BeamSearch):
    """A beam whose steps give logits."""

    def extend(self, beam: Beam, found: SearchStep, at: Place | None) -> tuple[Beam, Beam]:
        logits, left = found.log_probs, found.room
        assert left is not None
        count = min(2 * self.width, beam.totals.shape[1] * logits.shape[1])
        totals, chosen = best_words(logits, beam.totals, count, self.end, left, found.missing)
        return parted(beam, totals, chosen, logits.shape[1], self.end, at)


def unruled(state: Any, rules: int) -> tuple[Any, Int[Tensor, "rows"], Int[Tensor, "rows"] | None]:
    """A model's State, how many words there may still be, and how many there must be before an end mark."""
    (inner, left), missing = state if rules == 2 else (state, None)
    return inner, left, missing


def logits_of(step: StepFunction, rules: int) -> Callable[[Tensor, Any], SearchStep]:
    """As `ruled` with the rules that are known, whose words are forbidden by whoever reads the logits."""

    def scored(words: Int[Tensor, "rows"], state: Any) -> SearchStep:
        inner, left, missing = unruled(state, rules)
        logits, weights, inner = step(words, inner)
        inner = inner._replace(places=inner.places + 1)
        after = (inner, left - 1) if missing is None else ((inner, left - 1), missing - 1)
        return SearchStep(logits, weights, after, left <= 1, left, missing=missing)

    return scored


def greedily(
    step: StepFunction, progress: GreedyProgress, places: Int[Tensor, "rows"], steps: int, end: int, rules: int
) -> GreedyProgress:
    """So many words more, written where the search's tensors lie; `places` too."""
    inner, left, missing = unruled(progress.state, rules)
    kept = progress.tokens, progress.lengths, progress.totals, progress.open
    inner = inner._replace(places=places)  # one count for both
    for _ in range(steps):
        logits = step(progress.words, inner).logits
        step_greedily(logits, GreedyRows(progress.words, *kept, left, places, missing), end)
    return progress._replace(state=(inner, left) if missing is None else ((inner, left), missing))
