"""Hidden Markov chains: what is observed, the states behind it, and how probable each state is, exactly (Rabiner 1989)."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from regard.corpora.corpus import Corpus, Pair

SHORTEST, LONGEST = 8, 20
Posteriors = Float[np.ndarray, "time states"]


class Chain(NamedTuple):
    """p(q_1), p(q_t+1 | q_t) and p(o_t | q_t); what states and observations are called."""

    first: Float[np.ndarray, "states"]
    transition: Float[np.ndarray, "states states"]
    emission: Float[np.ndarray, "states symbols"]
    states: Sequence[str]
    symbols: Sequence[str]

    def numbers(self, observations: Sequence[str]) -> list[int]:
        return [self.symbols.index(one) for one in observations]

    def draw(self, length: int, random: Random) -> tuple[list[str], list[str]]:
        """Observations and states."""
        states, symbols, chances = [], [], self.first
        for _ in range(length):
            state = chosen(chances, random)
            states.append(self.states[state])
            symbols.append(self.symbols[chosen(self.emission[state], random)])
            chances = self.transition[state]
        return symbols, states

    def forward(self, observations: Sequence[str]) -> Posteriors:
        """p(q_t | o_1 .. o_t): the forward algorithm, each step normalised."""
        found, chances = [], self.first
        for symbol in self.numbers(observations):
            joint = chances * self.emission[:, symbol]
            found.append(joint / joint.sum())
            chances = found[-1] @ self.transition
        return np.stack(found)

    def forward_backward(self, observations: Sequence[str]) -> Posteriors:
        """p(q_t | o_1 .. o_T): what was seen before, times β_t = p(o_t+1 .. o_T | q_t) but for a factor."""
        backward, found = np.ones(len(self.states)), []
        for before, symbol in zip(self.forward(observations)[::-1], self.numbers(observations)[::-1], strict=True):
            joint = before * backward
            found.append(joint / joint.sum())
            backward = self.transition @ (self.emission[:, symbol] * backward)
            backward = backward / backward.sum()
        return np.stack(found[::-1])


def chosen(chances: Float[np.ndarray, "number"], random: Random) -> int:
    """The first place where the sum of chances exceeds a random number."""
    return min(int(np.searchsorted(np.cumsum(chances), random.random(), side="right")), len(chances) - 1)


CHAIN = Chain(
    first=np.array([0.5, 0.25, 0.25]),
    transition=np.array([[0.75, 0.125, 0.125], [0.25, 0.625, 0.125], [0.0625, 0.1875, 0.75]]),
    emission=np.array([[0.5, 0.25, 0.125, 0.125], [0.125, 0.5, 0.25, 0.125], [0.125, 0.125, 0.25, 0.5]]),
    states=("Q1", "Q2", "Q3"),
    symbols=("a", "b", "c", "d"),
)


def sequences(seed: str) -> Iterator[Pair]:
    random = Random(seed)
    while True:
        symbols, states = CHAIN.draw(SHORTEST + int(random.random() * (LONGEST - SHORTEST + 1)), random)
        yield Pair(" ".join(symbols), " ".join(states), ())


MARKOV = Corpus(
    name="markov",
    about="Observations of a hidden Markov chain with three states, tagged with the states; exact posteriors are known",
    source_suffix="observed",
    target_suffix="states",
    sizes={"train": 20000, "valid": 300, "test": 300},
    draw=sequences,
    target_column="tags",
    joint=None,
)
