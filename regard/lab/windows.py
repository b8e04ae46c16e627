"""What a model reads and what it is to predict, cut into windows: rows that stand alone, or a stream in lanes."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from regard.data.batching import Batch, Column, Integers

IGNORE = -1  # a position at which nothing is asked


def window(inputs: Integers, targets: Integers, rows: Integers, fresh: bool) -> Batch:
    """[rows, time]: what is read, what is asked. `lanes` are there where their state goes on from the last window."""
    columns = {"source": Column(inputs), "target": Column(targets)}
    return Batch(columns if fresh else {**columns, "lanes": Column(rows, times=0)}, rows)


def asked(window: Batch) -> int:
    return int((window["target"].values != IGNORE).sum())


class Rows(NamedTuple):
    """`training` gives windows without end, `once` asks for everything once."""

    inputs: Integers  # [rows, time]
    targets: Integers

    def training(self, batch: int, window: int, seed: int) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(seed)
        while True:
            yield from self.cut(torch.randperm(len(self.inputs), generator=generator).numpy(), batch)

    def once(self, batch: int, window: int) -> Iterator[Batch]:
        return self.cut(np.arange(len(self.inputs)), batch)

    def cut(self, order: Integers, batch: int) -> Iterator[Batch]:
        for begin in range(0, len(order), batch):
            rows = order[begin : begin + batch]
            yield window(self.inputs[rows], self.targets[rows], rows, fresh=True)


class Stream(NamedTuple):
    """As `Rows`, but what follows is read with the state that was left."""

    tokens: Integers

    def training(self, batch: int, window: int, seed: int) -> Iterator[Batch]:
        """Pass after pass, each from another place."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            start = int(torch.randint(len(self.tokens), (), generator=generator))
            yield from lanes(np.roll(self.tokens, start), batch, window)

    def once(self, batch: int, window: int) -> Iterator[Batch]:
        return lanes(self.tokens, batch, window)


Windows = Rows | Stream


def lanes(tokens: Integers, batch: int, steps: int) -> Iterator[Batch]:
    """The stream as `batch` lanes side by side, which windows follow; every token but the first is asked for once."""
    count = len(tokens) - 1
    length = -(-count // batch)
    inputs, targets = np.zeros((batch, length), np.int64), np.full((batch, length), IGNORE)
    inputs.flat[:count], targets.flat[:count] = tokens[:-1], tokens[1:]
    for begin in range(0, length, steps):
        part = slice(begin, begin + steps)
        yield window(inputs[:, part], targets[:, part], np.arange(batch), fresh=begin == 0)


class WindowFeed:
    """One window a step, each whole and in its turn: a state goes on from one to the next."""

    def __init__(self, windows: Iterator[Batch]) -> None:
        self.windows = windows

    def rows(self, step: int) -> Integers:
        self.window = next(self.windows)
        assert self.window.rows is not None
        return self.window.rows

    def tokens(self, rows: Integers) -> int:
        return max(1, asked(self.window))

    def batch(self, rows: Integers, step: int) -> Batch:
        return self.window
