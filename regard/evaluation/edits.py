"""Error rates: how many words or characters of an output must be changed to make its reference of it."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

from regard.evaluation.score import Counted, References, how_many, paired


class Errors(NamedTuple):
    """So many, beside a reference of so many words or characters."""

    errors: int
    length: int

    @property
    def rate(self) -> float:
        """Errors / length; of an empty reference 1 for any output but an empty one, as sacreBLEU's TER has it."""
        return self.errors / self.length if self.length else float(self.errors > 0)


Compare = Callable[[str, str], Errors]  # an output, a reference


def edits(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> int:
    """The Levenshtein distance: the fewest insertions, deletions and substitutions that make one of the other.

    Myers 1999 as Hyyrö 2003 has it: D[i, j] - D[i - 1, j] is 1, 0 or -1, so that a column of the table is two integers,
    whose bit i says whether the difference at place i of `theirs` is 1 (`rises`) or -1 (`falls`), however long they are.
    """
    if not theirs:
        return len(ours)
    places = dict[Hashable, int]()
    for at, token in enumerate(theirs):
        places[token] = places.get(token, 0) | 1 << at
    every, last, distance = (1 << len(theirs)) - 1, 1 << len(theirs) - 1, len(theirs)
    rises, falls = every, 0
    for token in ours:
        equal = places.get(token, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal | falls  # where D[i, j] is D[i - 1, j - 1]
        right, left = falls | ~(diagonal | rises), rises & diagonal  # D[i, j] - D[i, j - 1] is 1, is -1
        distance += bool(right & last) - bool(left & last)
        right, left = right << 1 | 1, left << 1
        rises, falls = (left | ~(diagonal | right)) & every, right & diagonal & every
    return distance


def words(output: str, reference: str) -> Errors:
    """Of words between blanks."""
    theirs = reference.split()
    return Errors(edits(output.split(), theirs), len(theirs))


def characters(output: str, reference: str) -> Errors:
    """Of code points, blanks between words among them."""
    theirs = reference.strip()
    return Errors(edits(output.strip(), theirs), len(theirs))


def words_anywhere(output: str, reference: str) -> Errors:
    """Of words, wherever they stand: max(output, reference) - those in both (Tillmann et al. 1997)."""
    ours, theirs = Counter(output.split()), Counter(reference.split())
    return Errors(max(ours.total(), theirs.total()) - (ours & theirs).total(), theirs.total())


def error_rate(name: str, compare: Compare, unit: str) -> Counted:
    """100 * errors / length over all rows; of several references that with the lowest rate counts."""

    def rows(hypotheses: Sequence[str], references: References) -> list[Errors]:
        pairs = paired(hypotheses, references)
        return [min((compare(output, one) for one in right), key=lambda found: found.rate) for output, right in pairs]

    def value(sums: list[float]) -> float:
        return 100 * Errors(*map(int, sums)).rate

    return Counted(name, rows, value, lambda truth: f"{name}|nrefs:{how_many(truth)}|case:mixed|unit:{unit}")


def worth(compare: Compare) -> Callable[[str, str], float]:
    """1 - the error rate of one output, and 0 where there are more errors than words."""
    return lambda output, reference: max(0.0, 1.0 - compare(output, reference).rate)
