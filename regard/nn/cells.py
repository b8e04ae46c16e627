"""Recurrent cells: a gate count, a state, and one update equation. CELLS names them."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.shared import Linear, shared


class Hidden(NamedTuple):
    hidden: Float[Tensor, "batch hidden"]


class HiddenMemory(NamedTuple):
    hidden: Float[Tensor, "batch hidden"]
    memory: Float[Tensor, "batch hidden"]


CellState = Hidden | HiddenMemory
Fused = Callable[..., Any]


class Cell(nn.Module):
    """Every state has `.hidden`: the cell's output and the only recurrent input.

    `from_input` maps x_t to all gates and needs no state, so a scan computes it for all steps at once.
    """

    gates: ClassVar[int]
    State: ClassVar[type[Hidden] | type[HiddenMemory]] = Hidden
    fused: ClassVar[Fused | None] = None  # the library's scan of the same equations: cuDNN on a GPU, oneDNN or ATen on a CPU
    cudnn_mode: ClassVar[int] = 0  # cuDNN's number for that scan

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.from_input = Linear(input_size, self.gates * hidden_size)
        self.from_hidden = Linear(hidden_size, self.gates * hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden_size**-0.5), hidden_size**-0.5)  # as torch.nn.RNNBase

    def zero_state(self, like: Float[Tensor, "batch *rest"]) -> CellState:
        zeros = like.new_zeros(like.shape[0], self.hidden_size)
        return self.State(*(zeros for _ in self.State._fields))

    def update(
        self, from_input: Float[Tensor, "batch gates"], from_hidden: Float[Tensor, "batch gates"], state: CellState
    ) -> CellState:
        raise NotImplementedError

    def bind(self) -> Callable[[Tensor, CellState], CellState]:
        """The step as a function for one pass: (gates from the input, state) -> state."""
        recurrent = shared(self.from_hidden)
        return lambda from_input, state: self.update(from_input, recurrent(state.hidden), state)

    def forward(self, inputs: Float[Tensor, "batch input"], state: CellState) -> CellState:
        return self.bind()(self.from_input(inputs), state)

    @property
    def weights(self) -> list[Tensor]:
        """In the order of torch.nn's recurrent layers, which the fused scans take."""
        return [self.from_input.weight, self.from_hidden.weight, self.from_input.bias, self.from_hidden.bias]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "Cell":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.fused is not None and self.from_input.weight.is_cuda:
            self.flatten()
        return self

    def flatten(self) -> None:
        """Lay the weights in one block, which cuDNN asks for (it copies them at every call otherwise)."""
        with torch.no_grad():
            torch._cudnn_rnn_flatten_weight(
                self.weights, 4, self.input_size, self.cudnn_mode, self.hidden_size, 0, 1, True, False
            )


class CellList(nn.ModuleList):
    """Cells that know they are cells."""

    def __iter__(self) -> Iterator[Cell]:
        return super().__iter__()  # type: ignore[return-value]

    def __getitem__(self, index: int) -> Cell:  # type: ignore[override]
        return super().__getitem__(index)  # type: ignore[return-value]


class TanhCell(Cell):
    """h = tanh(W x + U h)  (Elman 1990)."""

    gates = 1
    fused = staticmethod(torch.rnn_tanh)
    cudnn_mode = 1

    def update(self, from_input: Tensor, from_hidden: Tensor, state: CellState) -> CellState:
        return Hidden(torch.tanh(from_input + from_hidden))


class LSTMCell(Cell):
    """Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000; gates in torch.nn.LSTM's order.

    c = f ∗ c + i ∗ tanh(g),  h = o ∗ tanh(c)
    """

    gates = 4
    State = HiddenMemory
    fused = staticmethod(torch.lstm)
    cudnn_mode = 2

    def update(self, from_input: Tensor, from_hidden: Tensor, state: CellState) -> CellState:
        assert isinstance(state, HiddenMemory)
        write, forget, candidate, read = (from_input + from_hidden).chunk(4, dim=-1)
        memory = torch.sigmoid(forget) * state.memory + torch.sigmoid(write) * torch.tanh(candidate)
        return HiddenMemory(torch.sigmoid(read) * torch.tanh(memory), memory)


class GRUCell(Cell):
    """Cho et al. 2014 in the reset-after form that cuDNN and torch.nn.GRU compute.

    n = tanh(W x + r ∗ (U h)),  h = (1 - z) ∗ n + z ∗ h
    """

    gates = 3
    fused = staticmethod(torch.gru)
    cudnn_mode = 3

    def update(self, from_input: Tensor, from_hidden: Tensor, state: CellState) -> CellState:
        size = self.hidden_size
        both = torch.sigmoid(from_input[..., : 2 * size] + from_hidden[..., : 2 * size])
        reset, keep = both.chunk(2, dim=-1)
        candidate = torch.tanh(from_input[..., 2 * size :] + reset * from_hidden[..., 2 * size :])
        return Hidden(candidate + keep * (state.hidden - candidate))


CELLS: dict[str, type[Cell]] = {"tanh": TanhCell, "lstm": LSTMCell, "gru": GRUCell}
