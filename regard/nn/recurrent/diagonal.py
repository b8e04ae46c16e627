"""The eager engine of a gated scan, on any device.

`update` is elementwise, so its Jacobian is diagonal: the partial derivatives of many steps are computed at once, from the
traced equation, and backward through time is left with a handful of multiplications and the products of each step.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.nn.kernels.recurrent.equation import Symbol, derivatives, numbers_of, trace
from regard.nn.linear import packed
from regard.nn.recurrent.cell import SQUASH, GatedCell
from regard.nn.recurrent.formula import Formula, Value, formula
from regard.nn.recurrent.gated_scan import Engine, Pre, ScanGradients, ScanPass, Track

STRETCH = 1 << 16  # elements of one pre-activation whose partial derivatives are computed at once: they stay in the cache


class EquationFormulas(NamedTuple):
    """A cell's traced equation, ready to be computed. Derivatives are ∂ result / ∂ argument, where that is not 0."""

    update: Formula
    reset: Formula | None
    derivatives: Formula
    places: list[tuple[str, str]]  # of the derivatives, by name: h, c or m; p0 .., s0 .., v0 ..


_KNOWN: dict[tuple[Any, ...], EquationFormulas] = {}


def equation_of(cell: GatedCell) -> EquationFormulas:
    """Made once for all cells of the same class and numbers."""
    key = numbers_of(cell)
    if key not in _KNOWN:
        _KNOWN[key] = make_equation(cell)
    return _KNOWN[key]


def make_equation(cell: GatedCell) -> EquationFormulas:
    traced = trace(cell)
    results = list(zip(("h", "c"), traced.new, strict=False)) + ([("m", traced.reset)] if traced.reset is not None else [])
    leaves = [*traced.pre, *traced.states, *traced.vectors]
    found: list[tuple[str, str, Symbol]] = []
    for name, result in results:
        one = result.graph.constant(1.0)
        by = derivatives([(result, one)], leaves)
        found += [
            (name, leaf.arguments[0], derivative)
            for leaf, derivative in zip(leaves, by, strict=True)
            if not is_zero(derivative)
        ]
    return EquationFormulas(
        formula(traced.new),
        None if traced.reset is None else formula([traced.reset]),
        formula([derivative for _, _, derivative in found]),
        [(result, leaf) for result, leaf, _ in found],
    )


def is_zero(symbol: Symbol) -> bool:
    return symbol.operation == "constant" and symbol.arguments[0] == 0.0


def named(pre: Sequence[Tensor], states: Sequence[Tensor], vectors: Sequence[Tensor]) -> dict[str, Tensor]:
    parts = (("p", pre), ("s", states), ("v", vectors))
    return {f"{letter}{number}": value for letter, values in parts for number, value in enumerate(values)}


def forward(fixed: ScanPass, pre: Pre, tracks: Sequence[Track]) -> None:
    cell, equation, active = fixed.cell, equation_of(fixed.cell), fixed.active(pre.shape[1])
    maps = {letter: packed(weight, len(pre), fixed.bias if letter == "h" else None) for letter, weight in fixed.weights.items()}
    places = {letter: pre[:, :, fixed.blocks(letter)].unbind(1) for letter in maps}
    blocks = list(zip(*(block.unbind(1) for block in pre.unbind(2)), strict=True))
    targets = list(zip(*(track[:, 1:].unbind(1) for track in tracks), strict=True))
    state = cell.State(*(track[:, 0] for track in tracks))
    again = maps.pop("m", None)
    for time in range(pre.shape[1]):
        values = named(blocks[time], state, fixed.vectors)
        for letter, product in maps.items():
            place = places[letter][time]
            place.add_(product(fixed.keep(SQUASH[letter](state.hidden))).view_as(place))
        if again is not None:
            assert equation.reset is not None
            place = places["m"][time]
            place.add_(again(fixed.keep(equation.reset(values)[0])).view_as(place))
        new = cell.State(*equation.update(values))
        state = new if active is None else cell.freeze(active[:, time], new, state)
        for target, part in zip(targets[time], state, strict=True):
            target.copy_(part)


class Backward:
    """Backward through one scan."""

    def __init__(self, fixed: ScanPass, pre: Pre, tracks: Sequence[Track], outputs: Tensor) -> None:
        self.fixed, self.saved, self.tracks, self.outputs = fixed, pre, tracks, outputs.unbind(1)
        self.active = fixed.active(pre.shape[1])
        self.equation = equation_of(fixed.cell)
        self.pre = torch.empty_like(pre)
        self.steps = list(zip(*(block.unbind(1) for block in self.pre.unbind(2)), strict=True))
        self.vectors = [torch.zeros_like(vector) for vector in fixed.vectors]
        self.maps = {letter: packed(weight.T.contiguous(), len(pre)) for letter, weight in fixed.weights.items()}
        self.places = {letter: self.pre[:, :, fixed.blocks(letter)].flatten(2).unbind(1) for letter in fixed.weights}

    def run(self, carried: Sequence[Tensor]) -> ScanGradients:
        stretch = max(1, STRETCH // max(1, carried[0].numel()))
        for end in range(self.pre.shape[1], 0, -stretch):
            start = max(0, end - stretch)
            derivatives = self.derivatives(slice(start, end))
            for time in reversed(range(start, end)):
                carried = self.step(time, [(place, at(derivative, time - start)) for place, derivative in derivatives], carried)
        return ScanGradients(self.pre, carried, self.vectors)

    def derivatives(self, steps: slice) -> list[tuple[tuple[str, str], Any]]:
        values = named(self.saved[:, steps].unbind(2), [track[:, steps] for track in self.tracks], self.fixed.vectors)
        return [
            (place, derivative.unbind(1) if isinstance(derivative, Tensor) else derivative)
            for place, derivative in zip(self.equation.places, self.equation.derivatives(values), strict=True)
        ]

    def step(self, time: int, derivatives: Sequence[tuple[tuple[str, str], Value]], carried: Sequence[Tensor]) -> list[Tensor]:
        """From the gradient of the state after a step to that of the state before it."""
        after = [carried[0] + self.outputs[time], *carried[1:]]
        active = None if self.active is None else self.active[:, time]
        live = after if active is None else [gradient * active for gradient in after]
        sums = StepSums(self.steps[time], live, self.vectors)
        sums.pull(dict(zip("hc", live, strict=False)), derivatives)
        if "m" in self.maps:
            sums.pull({"m": self.product_back("m", time)}, derivatives)
        sums.finish()
        before = sums.states
        if "h" in self.maps:
            before[0] = sums.plus(before[0], self.product_back("h", time))
        if "t" in self.maps:
            squashed = torch.tanh(self.tracks[0][:, time])
            before[0] = sums.plus(before[0], self.product_back("t", time) * (1 - squashed * squashed))
        found = [torch.zeros_like(old) if new is None else new for new, old in zip(before, after, strict=True)]
        return found if active is None else [torch.where(active, new, old) for new, old in zip(found, after, strict=True)]

    def product_back(self, letter: str, time: int) -> Tensor:
        return self.fixed.keep(self.maps[letter](self.places[letter][time]))


def at(derivative: Any, row: int) -> Value:
    value: Value = derivative[row] if isinstance(derivative, tuple) else derivative
    return value


class StepSums:
    """Gradients of one step's arguments, added up in place: the first share is written, the others are added."""

    def __init__(self, blocks: Sequence[Tensor], live: Sequence[Tensor], vectors: Sequence[Tensor]) -> None:
        self.blocks, self.vectors = blocks, vectors
        self.states: list[Tensor | None] = [None for _ in live]
        self.written = [False for _ in blocks]

    def pull(self, gradients: dict[str, Tensor], derivatives: Sequence[tuple[tuple[str, str], Value]]) -> None:
        for (result, leaf), derivative in derivatives:
            if result in gradients:
                self.share(leaf[0], int(leaf[1:]), gradients[result], derivative)

    def share(self, kind: str, number: int, gradient: Tensor, derivative: Value) -> None:
        if kind == "p":
            self.to_block(number, gradient, derivative)
        elif kind == "s":
            self.states[number] = self.plus(self.states[number], gradient * derivative)
        else:
            self.vectors[number].add_((gradient * derivative).sum(0))

    def to_block(self, number: int, gradient: Tensor, derivative: Value) -> None:
        block = self.blocks[number]
        if not self.written[number]:
            torch.mul(gradient, derivative, out=block)
        elif isinstance(derivative, Tensor):
            block.addcmul_(gradient, derivative)
        else:
            block.add_(gradient, alpha=derivative)
        self.written[number] = True

    @staticmethod
    def plus(before: Tensor | None, more: Tensor) -> Tensor:
        return more if before is None else before.add_(more)

    def finish(self) -> None:
        for block, written in zip(self.blocks, self.written, strict=True):
            if not written:
                block.zero_()


def backward(fixed: ScanPass, pre: Pre, tracks: Sequence[Track], outputs: Tensor, carried: Sequence[Tensor]) -> ScanGradients:
    return Backward(fixed, pre, tracks, outputs).run(carried)


DIAGONAL = Engine(forward, backward)
