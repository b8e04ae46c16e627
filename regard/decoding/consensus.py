"""Minimum Bayes risk: of several outputs, the one that is most like the others (Kumar & Byrne 2004; Eikema & Aziz 2020)."""

import math
from collections.abc import Callable, Sequence
from functools import cache

from regard.decoding.hypothesis import Hypothesis

Utility = Callable[[str, str], float]  # what an output is worth if another were true; every sentence metric is one


def consensus(found: Sequence[Hypothesis], utility: Utility, sampled: bool = True) -> list[Hypothesis]:
    """Σ_j w_j u(y_i, y_j) is the `score` of each, best first, the same text only once. Samples count as often as they
    were drawn; the hypotheses of a beam count by their probability among themselves."""
    best = max((one.log_prob for one in found), default=0.0)
    weights = [1.0 if sampled else math.exp(one.log_prob - best) for one in found]
    worth, whole = cache(utility), sum(weights)

    def expected(text: str) -> float:
        return sum(weight * worth(text, one.text) for weight, one in zip(weights, found, strict=True)) / whole

    distinct = {one.text: one for one in reversed(found)}  # the first of those that read alike
    ranked = [distinct[text]._replace(score=expected(text)) for text in dict.fromkeys(one.text for one in found)]
    return sorted(ranked, key=lambda one: -one.score)
