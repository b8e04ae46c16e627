"""ROUGE (Lin 2004) as Google's rouge_score counts it: words of a-z and 0-9 in lower case, the mean over rows."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

from regard.evaluation.porter import stemmed
from regard.evaluation.score import Counted, References, how_many, paired, percent

Words = tuple[str, ...]
STEMMED_FROM = 4  # letters


class Overlap(NamedTuple):
    """So much is in both texts; so much is in the output, and in the reference."""

    both: int
    output: int
    reference: int

    @property
    def precision(self) -> float:
        return self.both / max(self.output, 1)

    @property
    def recall(self) -> float:
        return self.both / max(self.reference, 1)

    @property
    def f(self) -> float:
        """2 P R / (P + R)"""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


@lru_cache(1 << 12)  # a text is judged in several ways
def words_of(text: str, stem: bool) -> Words:
    found = re.findall("[a-z0-9]+", text.lower())
    return tuple(stemmed(word) if stem and len(word) >= STEMMED_FROM else word for word in found)


def sentences_of(text: str, stem: bool) -> list[Words]:
    return [words_of(line, stem) for line in text.split("\n")]


def n_grams(size: int, output: str, reference: str, stem: bool) -> Overlap:
    """ROUGE-N: stretches of N words, each as often as it stands in both."""
    ours, theirs = (stretches(words_of(text, stem), size) for text in (output, reference))
    return Overlap((ours & theirs).total(), ours.total(), theirs.total())


def stretches(words: Words, size: int) -> Counter[Words]:
    return Counter(words[at : at + size] for at in range(len(words) - size + 1))


def in_order(output: str, reference: str, stem: bool) -> Overlap:
    """ROUGE-L of a sentence: the longest common subsequence; line feeds are spaces."""
    ours, theirs = words_of(output, stem), words_of(reference, stem)
    return Overlap(common_length(ours, theirs), len(ours), len(theirs))


def common_length(ours: Words, theirs: Words) -> int:
    """Of the longest common subsequence, a row of its table in one number: bit i is 0 where it grows at word i (Hyyrö 2004)."""
    places: dict[str, int] = {}
    for at, word in enumerate(ours):
        places[word] = places.get(word, 0) | 1 << at
    every = row = (1 << len(ours)) - 1
    for word in theirs:
        found = row & places.get(word, 0)
        row = ((row + found) | (row - found)) & every
    return len(ours) - row.bit_count()


def in_order_by_line(output: str, reference: str, stem: bool) -> Overlap:
    """ROUGE-Lsum of a summary whose sentences are lines: words of each sentence of the reference that are in its longest
    common subsequence with some sentence of the output, none more often than it stands in both (Lin 2004, 3.2; ROUGE 1.5.5)."""
    ours, theirs = sentences_of(output, stem), sentences_of(reference, stem)
    counts, most = (Counter(word for one in text for word in one) for text in (ours, theirs))
    found = Counter(sentence[at] for sentence in theirs for at in {at for one in ours for at in common_places(sentence, one)})
    return Overlap((found & counts & most).total(), counts.total(), most.total())


def common_places(sentence: Words, other: Words) -> list[int]:
    """Where the words of one longest common subsequence stand in the sentence: of several, the one rouge_score finds."""
    table = [[0] * (len(other) + 1) for _ in range(len(sentence) + 1)]
    for i, word in enumerate(sentence, start=1):
        for j, beside in enumerate(other, start=1):
            table[i][j] = table[i - 1][j - 1] + 1 if word == beside else max(table[i - 1][j], table[i][j - 1])
    places, i, j = [], len(sentence), len(other)
    while i and j:
        if sentence[i - 1] == other[j - 1]:
            i, j = i - 1, j - 1
            places.append(i)
        elif table[i][j - 1] > table[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return places


# What is counted, by the end of its name
KINDS: dict[str, Callable[[str, str, bool], Overlap]] = {
    "1": partial(n_grams, 1),
    "2": partial(n_grams, 2),
    "L": in_order,
    "Lsum": in_order_by_line,
}


def best(kind: str, stem: bool, output: str, references: Sequence[str]) -> Overlap:
    """Beside the reference that gives the highest F, the first of equals."""
    return max((KINDS[kind](output, one, stem) for one in references), key=lambda one: one.f)


def rouge(kind: str, measure: str, stem: bool) -> Counted:
    """The mean over rows, in percent, of `f`, `precision` or `recall`."""

    def rows(hypotheses: Sequence[str], references: References) -> list[tuple[float, int]]:
        return [(getattr(best(kind, stem, output, right), measure), 1) for output, right in paired(hypotheses, references)]

    def signature(references: References) -> str:
        level = {"L": "|level:sentence", "Lsum": "|level:summary, a sentence per line"}.get(kind, "")
        return f"ROUGE-{kind}|nrefs:{how_many(references)}|{measure}{level}|stem:{'porter' if stem else 'no'}|mean:rows"

    name = f"ROUGE-{kind}{'' if measure == 'f' else f' {measure}'}{' stemmed' if stem else ''}"
    return Counted(name, rows, percent, signature)


def sentence_f(kind: str, stem: bool) -> Callable[[str, str], float]:
    return lambda hypothesis, reference: KINDS[kind](hypothesis, reference, stem).f
