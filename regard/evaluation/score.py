"""A score, and the metrics that are a function of sums over rows; outputs beside one reference or several."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regard.errors import UserError

References = Sequence[str] | Sequence[Sequence[str]]  # one for each row, or several of which each is right
Counts = npt.NDArray[np.float64]  # [rows, numbers that add up]


ENDS = (2.5, 97.5)  # percentiles of the resampled scores: 95 % lie between them


class Score(NamedTuple):
    """A number with its name and, where the field has variants, the signature that tells them apart."""

    name: str
    value: float
    signature: str = ""
    interval: tuple[float, float] | None = None  # 95 % of resampled test sets score between these
    parts: tuple["Score", ...] = ()  # of each label, where it is made of them


@dataclass(frozen=True)
class Counted:
    """A metric that counts in each row, and is a function of the sums over all rows: these are what an interval resamples."""

    name: str
    rows: Callable[[Any, Any], Sequence[Sequence[float]]]  # what a model gave, what is true -> the counts of each row
    value: Callable[[list[float]], float]  # of the sums; an empty list where there is no row
    signature: Callable[[Any], str] = lambda truth: ""  # asked after `rows`
    ready: Callable[[], object] = lambda: None  # a UserError if something that it needs is not installed

    def __call__(self, found: Any, truth: Any) -> Score:
        return self.score(self.counts(found, truth), truth)

    def counts(self, found: Any, truth: Any) -> Counts:
        rows = self.rows(found, truth)
        return np.array(rows, np.float64).reshape(len(rows), len(rows[0]) if len(rows) else 0)

    def parts(self, found: Any, truth: Any, counts: Counts, resampled: Counts) -> tuple[Score, ...]:
        """What it is made of, as scores with intervals: of these counts, and of the sums of resampled ones."""
        return ()

    def score(self, counts: Counts, truth: Any) -> Score:
        return Score(self.name, self.value(counts.sum(axis=0).tolist()), self.signature(truth))


def paired(hypotheses: Sequence[str], references: References) -> list[tuple[str, list[str]]]:
    """Each output with all its references. Scores compare line by line: refuse what cannot be paired."""
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses)} hypotheses but {len(references)} references: one reference for each line")
    if not references:
        raise UserError("nothing to score: there is no line in hypotheses and references")
    several = [[one] if isinstance(one, str) else list(one) for one in references]
    if [] in several:
        raise UserError(f"row {several.index([]) + 1} of {len(several)} has no reference; each row needs at least one")
    return list(zip(hypotheses, several, strict=True))


def how_many(references: References) -> str:
    """References a row, as sacreBLEU's signatures say it."""
    numbers = {1 if isinstance(one, str) else len(one) for one in references}
    return str(numbers.pop()) if len(numbers) == 1 else "var"


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """Between which 95 % of these values lie."""
    low, high = np.percentile(values, ENDS).tolist()
    return low, high


def percent(sums: list[float]) -> float:
    """So much of so much."""
    return 100.0 * sums[0] / max(sums[1], 1.0)
