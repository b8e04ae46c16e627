"""The elementwise half of a step in one launch, and one backward: any gated cell inside a decoder's loop on a GPU.

Between its products a step adds up shares and applies the cell's update: a dozen launches, each of which takes longer to
start than to run. The equation and its derivative are the ones that equation.py writes for the persistent scan.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.autograd import apply
from regard.nn.kernels.machine import able, power_of_two, with_whole_rows
from regard.nn.kernels.recurrent.equation import BLOCKS, equation_of, traceable
from regard.nn.recurrent.cell import CellState, GatedCell

Share = Float[Tensor, "rows width"]
State = Float[Tensor, "rows hidden"]
LETTERS = "xhtm"
UNITS = 256  # of the state, a program


def applies(cell: GatedCell, like: Tensor) -> bool:
    """Whether this machine can, and the cell's equation is one that can be traced."""
    return able(like) and traceable(cell)


def bind_update(cell: GatedCell) -> Callable[[Mapping[str, Share], CellState], CellState]:
    """(the share of each term, state) -> the new state, as a function for one pass."""
    vectors = [torch.stack(list(cell.vectors))] if cell.vectors else []

    def update(shares: Mapping[str, Share], state: CellState) -> CellState:
        kind = Kind(cell, "".join(shares), reset=False)
        return cell.State(*apply(_Step, kind, *shares.values(), *state, *vectors))

    return update


def bind_reset(cell: GatedCell) -> Callable[[Mapping[str, Share], CellState], State]:
    """(the share of each term but m, state) -> m, as a function for one pass."""

    def reset(shares: Mapping[str, Share], state: CellState) -> State:
        (hidden,) = apply(_Step, Kind(cell, "".join(shares), reset=True), *shares.values(), *state)
        return hidden

    return reset


class Kind(NamedTuple):
    """What is computed, of which shares."""

    cell: GatedCell
    letters: str
    reset: bool

    @property
    def states(self) -> int:
        return len(self.cell.State._fields)

    @property
    def results(self) -> int:
        return 1 if self.reset else self.states

    def places(self, letters: str) -> tuple[int, ...]:
        """For each sum and each letter: which block of that letter's share it adds, or -1."""
        found = {letter: self.cell.place(letter) for letter in letters}
        return tuple(
            found[letter].index(sum) if sum in found.get(letter, ()) else -1 for sum in range(BLOCKS) for letter in LETTERS
        )

    def twin(self, letter: str) -> str:
        """The first letter that stands in the same sums: both have one gradient."""
        return next(other for other in self.letters if self.cell.place(other) == self.cell.place(letter))

    def options(self) -> dict[str, Any]:
        hidden = self.cell.hidden_size
        vectors = 0 if self.reset else len(self.cell.vectors)
        facts = {"UNITS": hidden, "BU": min(UNITS, power_of_two(hidden)), "STATES": self.states, "NV": vectors}
        return facts | {"PLACES": self.places(self.letters), "RESET": self.reset, "num_warps": 2}

    def grid(self, rows: int) -> tuple[int, int]:
        return rows, -(-self.cell.hidden_size // min(UNITS, power_of_two(self.cell.hidden_size)))


class StepInputs(NamedTuple):
    """What a step reads, each with whole rows."""

    shares: Sequence[Share]
    states: Sequence[State]
    vectors: Sequence[Tensor]


def read_of(kind: Kind, tensors: Sequence[Tensor]) -> StepInputs:
    rows = [with_whole_rows(tensor) for tensor in tensors]
    first, second = len(kind.letters), len(kind.letters) + kind.states
    return StepInputs(rows[:first], rows[first:second], rows[second:])


def four(kind: Kind, tensors: Sequence[Tensor]) -> list[Tensor]:
    """One for each letter; any tensor stands for a share that is not there."""
    named = dict(zip(kind.letters, tensors, strict=True))
    return [named.get(letter, tensors[0]) for letter in LETTERS]


def strides(tensors: Sequence[Tensor]) -> list[int]:
    return [tensor.stride(0) for tensor in tensors]


class _Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kind: Kind, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.kind = kind
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return stepped(kind, read_of(kind, tensors))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        return None, *stepped_back(ctx.kind, read_of(ctx.kind, ctx.saved_tensors), gradients)


def stepped(kind: Kind, read: StepInputs) -> tuple[State, ...]:
    from regard.nn.kernels.recurrent.gates_tiles import step

    equation, number = equation_of(kind.cell), read.shares[0].dtype
    new = [torch.empty_like(one, dtype=torch.promote_types(number, one.dtype)).contiguous() for one in read.states]
    shares, ends = four(kind, read.shares), (read.states[0], read.states[-1])
    step[kind.grid(len(new[0]))](
        *shares, *ends, (*read.vectors, new[0])[0], new[0], new[-1], *strides(shares), *strides(ends),
        UPDATE=equation.reset if kind.reset else equation.update, **kind.options(),
    )  # fmt: skip
    return tuple(new[: kind.results])


def stepped_back(kind: Kind, read: StepInputs, gradients: Sequence[Tensor | None]) -> list[Tensor]:
    """The gradients of shares, states and vectors."""
    from regard.nn.kernels.recurrent.gates_tiles import step_back

    equation, rows = equation_of(kind.cell), len(read.states[0])
    into = {letter: torch.empty(share.shape, dtype=share.dtype, device=share.device)
            for letter, share in zip(kind.letters, read.shares, strict=True) if kind.twin(letter) == letter}  # fmt: skip
    states = [torch.empty(one.shape, dtype=one.dtype, device=one.device) for one in read.states]
    vectors = [one.new_empty(rows, *one.shape, dtype=torch.float32) for one in read.vectors]
    given = [states[0] if one is None else one.contiguous() for one in gradients]
    shares, ends, grads = four(kind, read.shares), (read.states[0], read.states[-1]), (given[0], given[-1])
    writes = [into.get(letter, shares[0]) for letter in LETTERS]
    there = [0 if one is not None else -1 for one in gradients]
    step_back[kind.grid(rows)](
        *shares, *ends, (*read.vectors, states[0])[0], *grads, *writes, states[0], states[-1], (*vectors, states[0])[0],
        *strides(shares), *strides(ends), *strides(grads), *strides(writes), INTO=kind.places("".join(into)),
        GIVEN=(there[0], there[-1] if len(there) > 1 else -1), PULL=equation.pull_reset if kind.reset else equation.pull,
        **kind.options(),
    )  # fmt: skip
    return [*(into[kind.twin(letter)] for letter in kind.letters), *states, *(one.sum(0) for one in vectors)]
