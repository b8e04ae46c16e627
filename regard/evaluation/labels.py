"""How good labels are, label by label and span by span: precision, recall and F1."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.evaluation.score import Counted, Counts, Score, percent, percentiles

Labels = Sequence[Sequence[str]]  # of each row
Found = Callable[[Sequence[str]], Iterable[tuple[str, Any]]]  # the labels of a row -> kinds, each with where it was found


def labels_right(found: Labels, truth: Labels) -> list[tuple[int, int]]:
    """Over all positions of all rows; one too few or too many is wrong."""
    return [
        (sum(one == other for one, other in zip(labels, wanted, strict=False)), max(len(labels), len(wanted)))
        for labels, wanted in zip(found, truth, strict=True)
    ]


def each_label(labels: Sequence[str]) -> list[tuple[str, int]]:
    """Every label is a find of its own: its kind, and where it stands."""
    return [(label, at) for at, label in enumerate(labels)]


def spans(tags: Sequence[str]) -> list[tuple[str, tuple[int, int]]]:
    """Stretches of B-KIND I-KIND ... (or S-, E-), as conlleval and seqeval read them: an I- without a beginning, or after
    another kind, begins a span; whatever has none of these prefixes is outside."""
    found, begin, kind, before = list[tuple[str, tuple[int, int]]](), None, "", "O"
    for at, tag in enumerate([*tags, "O"]):
        prefix, dash, own = tag.partition("-")
        inside = bool(dash) and prefix in ("B", "I", "E", "S")
        goes_on = inside and prefix in ("I", "E") and own == kind and before in ("B", "I")
        if begin is not None and not goes_on:
            found.append((kind, (begin, at)))
            begin = None
        if begin is None and inside:
            begin, kind = at, own
        before = prefix if inside else "O"
    return found


def f1(right: float, found: float, wanted: float) -> float:
    """2 P R / (P + R) with P = right / found and R = right / wanted, in percent; 0 where there is nothing."""
    return percent([2 * right, found + wanted])


@dataclass(frozen=True)
class ByKind(Counted):
    """Counts (right, found, wanted) of each kind; its parts are the kinds."""

    finds: Found = each_label

    def parts(self, found: Any, truth: Any, counts: Counts, resampled: Counts) -> tuple[Score, ...]:
        names, sums = kinds(self.finds, found, truth), counts.sum(axis=0).reshape(-1, 3)
        draws = resampled.reshape(len(resampled), -1, 3)
        scores = []
        for place in sorted(range(len(names)), key=lambda place: (-sums[place, 2], names[place])):
            right, given, wanted = sums[place].tolist()
            told = f"precision {percent([right, given]):.1f}, recall {percent([right, wanted]):.1f} of {wanted:,.0f}"
            values = [f1(*one) for one in draws[:, place].tolist()]
            scores.append(Score(names[place], f1(right, given, wanted), told, percentiles(values)))
        return tuple(scores)


def kinds(finds: Found, found: Labels, truth: Labels) -> list[str]:
    """Those that somebody gave, right or wrong."""
    return sorted({kind for side in (found, truth) for labels in side for kind, _ in finds(labels)})


def counting(finds: Found) -> Callable[[Labels, Labels], list[list[int]]]:
    """(right, found, wanted) of every kind in each row."""

    def rows(found: Labels, truth: Labels) -> list[list[int]]:
        names, result = kinds(finds, found, truth), []
        for ours, theirs in zip(found, truth, strict=True):
            given, wanted = set(finds(ours)), set(finds(theirs))
            sides = [Counter(kind for kind, _ in side) for side in (given & wanted, given, wanted)]
            result.append([side[name] for name in names for side in sides])
        return result

    return rows


def macro(sums: list[float]) -> float:
    """The mean F1 of all kinds that there are; each counts as much as every other."""
    values = [f1(*each) for each in np.reshape(sums, (-1, 3)).tolist() if each[1] + each[2]]
    return sum(values) / max(len(values), 1)


def micro(sums: list[float]) -> float:
    """F1 of all kinds together."""
    return f1(*np.reshape(sums, (-1, 3)).sum(axis=0).tolist())


MACRO_F1 = ByKind("macro F1", counting(each_label), macro)
SPAN_F1 = ByKind("span F1", counting(spans), micro, finds=spans)
