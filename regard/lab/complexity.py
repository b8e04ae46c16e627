"""What attention costs: time and memory against lengths, measured, with the exponents that fit them."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.insight.curves import Lines, Picture, Series
from regard.lab.experiment import Asked, Experiment, Report, Row, Setting, of, smoke
from regard.lab.grids import spread
from regard.lab.pace import kept
from regard.nn.attention import Attention
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.scan import scan

LONGEST = 3  # lengths that exponents are fitted to: where the law shows, and overheads do not
Lengths = tuple[int, int]  # of source and target
Work = Callable[[], Tensor]  # forward; what it gives is summed and differentiated


class Case(NamedTuple):
    """`make(size, lengths)` gives the work; `grows` says what the lecture or the paper expects of time and memory."""

    make: Callable[[int, Lengths], Work]
    law: str
    time: float  # expected exponent where both lengths grow together
    memory: float


def states(length: int, size: int) -> Tensor:
    return torch.randn(1, length, size, requires_grad=True)


def recurrent(size: int, lengths: Lengths) -> Work:
    """A GRU reads l_1 words, another writes l_2."""
    cells, (source, target) = [CELLS["gru"](size, size) for _ in lengths], (states(length, size) for length in lengths)
    return lambda: scan(cells[1], target, scan(cells[0], source)[1])[0]


def attends(score: str, whole: bool, size: int, lengths: Lengths) -> Work:
    """l_2 queries look at l_1 states; `whole`: the matrix of weights is made and kept."""
    attention, (source, target) = Attention(size, size, score=score, size=size), (states(length, size) for length in lengths)
    return lambda: attention(target, attention.prepare(source), return_weights=whole).context


def sees_itself(whole: bool, scope: str, size: int, lengths: Lengths) -> Work:
    """One head of self-attention over n = l_1 words."""
    attention = Attention(size, size, score="projected", size=size, values=size, scope=scope, window=16)
    words = states(lengths[0], size)
    return lambda: attention(words, attention.prepare(words), return_weights=whole).context


CASES: dict[str, Case] = {
    "recurrent": Case(recurrent, "l1 + l2", 1, 1),
    "attention": Case(partial(attends, "additive", True), "l1 l2", 2, 2),
    "dot-attention": Case(partial(attends, "dot", True), "l1 l2", 2, 2),
    "dot-attention-linear": Case(partial(attends, "dot", False), "l1 l2, memory l1 + l2", 2, 1),
    "self-attention": Case(partial(sees_itself, True, "global"), "n²", 2, 2),
    "self-attention-linear": Case(partial(sees_itself, False, "global"), "n², memory n", 2, 1),
}


def trial(asked: Asked, name: str, seed: int, run: Path) -> Row:
    """The figures of every length, both sides being as long; lengths take turns, so that noise hits all alike."""
    lengths, size = asked.setting.values["lengths"], asked.setting.values["size"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        works = [CASES[name].make(size, (length, length)) for length in lengths]
    memory = [kept(work) for work in works]
    for work in works:
        seconds(work)  # warm
    turns = [[seconds(work) for work in works] for _ in range(asked.setting.values["repeats"])]
    taken = [median(each) for each in zip(*turns, strict=True)]
    return {
        "lengths": lengths,
        "CPU seconds": taken,
        "bytes kept": memory,
        "time exponent": round(exponent(lengths[-LONGEST:], taken[-LONGEST:]), 3),
        "memory exponent": round(exponent(lengths[-LONGEST:], memory[-LONGEST:]), 3),
    }


def seconds(work: Work) -> float:
    """Of this process's own time, forward and backward."""
    started = time.process_time()
    torch.autograd.backward(work().sum())
    return time.process_time() - started


def exponent(lengths: list[int], figures: list[float] | list[int]) -> float:
    """The a of figure = b length^a, by least squares over logarithms."""
    return float(np.polyfit(np.log(lengths), np.log(np.maximum(figures, 1e-9)), 1)[0])


def report(asked: Asked, rows: list[Row]) -> Report:
    grid = [["what", "law", "time exponent", "expected", "memory exponent", "expected"]]
    for name in asked.names:
        case, times, memories = CASES[name], of(rows, name, "time exponent"), of(rows, name, "memory exponent")
        grid.append([name, case.law, spread(times), f"{case.time:g}", spread(memories), f"{case.memory:g}"])
    title = "Time and memory of one forward and backward pass against length"
    panels = [
        Lines(key, "length, of source and target", key, [series(rows, name, key) for name in asked.names], True, True)
        for key in ("CPU seconds", "bytes kept")
    ]
    notes = ["exponents are fitted to the three longest lengths; medians; memory is what is kept for the backward pass"]
    return Report(title, grid, claims(rows), notes, {"complexity": Picture(title, panels, "; ".join(asked.budget))})


def series(rows: list[Row], name: str, key: str) -> Series:
    some = [row for row in rows if row["name"] == name]
    return Series(name, some[0]["lengths"], [mean(each) for each in zip(*(row[key] for row in some), strict=True)])


def claims(rows: list[Row]) -> list[tuple[str, bool | None]]:
    """Time tends to its law from below: overheads and products with the states grow linearly. Half a power tells them apart."""
    found = {row["name"]: row for row in rows}

    def near(name: str, what: str, expected: float) -> bool | None:
        return abs(found[name][f"{what} exponent"] - expected) < 0.5 if name in found else None

    return [
        ("standard seq2seq: O(l1 + l2) time (003)", near("recurrent", "time", 1)),
        ("seq2seq + attention: O(l1 l2) time (003)", near("attention", "time", 2)),
        ("attention computations are technically O(n²) (001)", near("self-attention", "time", 2)),
    ]


EXPERIMENT = Experiment(
    settings={
        "smoke": smoke(lengths=[8, 16, 32, 64], size=8, repeats=1),
        "quick": Setting(
            "a minute on two cores", values={"lengths": [128, 256, 512, 1024, 2048, 4096], "size": 32, "repeats": 3}
        ),
        "full": Setting(
            "minutes on a quiet machine; not run yet",
            seeds=3,
            values={"lengths": [128, 256, 512, 1024, 2048, 4096, 8192], "size": 64, "repeats": 7},
        ),
    },
    names=lambda: list(CASES),
    trial=trial,
    report=report,
)
