"""What a model reads and what it is to predict, cut into windows: rows that stand alone, or a stream in lanes."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

IGNORE = -1  # a position at which nothing is asked


class Window(NamedTuple):
    inputs: Int[Tensor, "batch time"]
    targets: Int[Tensor, "batch time"]
    fresh: bool  # the state starts anew; otherwise it goes on from the last window


class Rows(NamedTuple):
    """`training` gives windows without end, `once` asks for everything once."""

    inputs: Int[Tensor, "rows time"]
    targets: Int[Tensor, "rows time"]

    def training(self, batch: int, window: int, seed: int) -> Iterator[Window]:
        generator = torch.Generator().manual_seed(seed)
        while True:
            order = torch.randperm(len(self.inputs), generator=generator).to(self.inputs.device)
            yield from Rows(self.inputs[order], self.targets[order]).once(batch, window)

    def once(self, batch: int, window: int) -> Iterator[Window]:
        for begin in range(0, len(self.inputs), batch):
            yield Window(self.inputs[begin : begin + batch], self.targets[begin : begin + batch], True)

    def to(self, device: torch.device) -> "Rows":
        return Rows(self.inputs.to(device), self.targets.to(device))


class Stream(NamedTuple):
    """As `Rows`, but what follows is read with the state that was left."""

    tokens: Int[Tensor, "length"]

    def training(self, batch: int, window: int, seed: int) -> Iterator[Window]:
        """Pass after pass, each from another place."""
        generator = torch.Generator().manual_seed(seed)
        while True:
            start = int(torch.randint(len(self.tokens), (), generator=generator))
            yield from lanes(self.tokens.roll(start), batch, window)

    def once(self, batch: int, window: int) -> Iterator[Window]:
        return lanes(self.tokens, batch, window)

    def to(self, device: torch.device) -> "Stream":
        return Stream(self.tokens.to(device))


Windows = Rows | Stream


def lanes(tokens: Int[Tensor, "length"], batch: int, window: int) -> Iterator[Window]:
    """The stream as `batch` lanes side by side, which windows follow; every token but the first is asked for once."""
    count = len(tokens) - 1
    length = -(-count // batch)
    inputs, targets = tokens.new_zeros(batch * length), tokens.new_full((batch * length,), IGNORE)
    inputs[:count], targets[:count] = tokens[:-1], tokens[1:]
    inputs, targets = inputs.view(batch, length), targets.view(batch, length)
    for begin in range(0, length, window):
        yield Window(inputs[:, begin : begin + window], targets[:, begin : begin + window], begin == 0)
