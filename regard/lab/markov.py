"""A recurrent network read as a Markov model: its tags beside the exact posteriors of the chain that wrote them.

What a tagger learns from drawn states is p(q_t | what it has read): read from left to right the forward algorithm's posterior,
read in both directions that of the forward-backward algorithm.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from regard.corpora.markov import CHAIN, Posteriors
from regard.decoding.labelling import TrainedLabeller
from regard.errors import UserError
from regard.evaluation.intervals import interval

ALGORITHMS: dict[str, Callable[[Sequence[str]], Posteriors]] = {
    "forward": CHAIN.forward,
    "forward_backward": CHAIN.forward_backward,
}


class Divergence(NamedTuple):
    """Σ_q p(q) log p(q) / p̂(q), the mean of all positions, in nats; 95 % of resampled test sets lie in the interval."""

    mean: float
    interval: tuple[float, float] | None


def divergences(trained: TrainedLabeller, texts: Sequence[str]) -> dict[str, Divergence]:
    """Of what a tagger of the corpus `markov` says, from what each algorithm says."""
    if sorted(trained.labels.names) != sorted(CHAIN.states):
        raise UserError(
            f"this model gives {', '.join(trained.labels.names[:5])}; one of the corpus markov gives {', '.join(CHAIN.states)}"
        )
    order = [trained.labels.names.index(name) for name in CHAIN.states]
    found = [one.double().cpu().numpy()[:, order] for one in trained.distributions(texts)]
    return {name: divergence([exact(text.split()) for text in texts], found) for name, exact in ALGORITHMS.items()}


def divergence(exact: Sequence[Posteriors], found: Sequence[Posteriors]) -> Divergence:
    rows = [(float((p * np.log(p / q)).sum()), len(p)) for p, q in zip(exact, found, strict=True)]
    counts = np.array(rows, np.float64)
    return Divergence(per_position(counts.sum(axis=0).tolist()), interval(per_position, counts))


def per_position(sums: list[float]) -> float:
    return sums[0] / sums[1]
