"""Sums and differences written in digits: `7 3 4 5 + 9 8 2` and `8 3 2 7`."""

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from regard.corpora.corpus import Corpus, Pair

LONGEST_TRAINED = 4  # digits of a number
LONGEST = 6


class Problem(NamedTuple):
    left: int
    sign: str
    right: int

    def __str__(self) -> str:
        return f"{self.left}{self.sign}{self.right}"

    @property
    def answer(self) -> str:
        return str(self.left + self.right if self.sign == "+" else self.left - self.right)


def number(random: Callable[[], float], digits: int) -> int:
    """First its length is drawn, then a number of that length: so small ones occur as often as large ones."""
    length = 1 + int(random() * digits)
    least = 10 ** (length - 1) if length > 1 else 0
    return least + int(random() * (10**length - least))


def problems(seed: str, digits: int) -> Iterator[Problem]:
    """Without end. Only `random()` is used, which Python keeps the same in all versions."""
    random = Random(seed).random
    while True:
        left, right = number(random, digits), number(random, digits)
        yield Problem(left, "+" if random() < 0.5 else "-", right)


def pair(problem: Problem) -> Pair:
    """A digit is a word. There is no alignment: every digit of the answer may hang on all digits of the problem."""
    return Pair(" ".join(str(problem)), " ".join(problem.answer), ())


def plain(seed: str) -> Iterator[Pair]:
    return map(pair, problems(seed, LONGEST_TRAINED))


def long(seed: str) -> Iterator[Pair]:
    """Problems with a number longer than any trained on."""
    return (pair(one) for one in problems(seed, LONGEST) if max(one.left, one.right) >= 10**LONGEST_TRAINED)


ARITHMETIC = Corpus(
    name="arithmetic",
    about="Sums and differences of two numbers, digit by digit; a test of longer numbers; no word alignments",
    source_suffix="problem",
    target_suffix="answer",
    sizes={"train": 20000, "valid": 500, "test": 500, "test-long": 300},
    draw=plain,
    own={"test-long": long},
)
