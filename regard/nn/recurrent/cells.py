"""The cells of the lectures, one equation each. CELLS names them.

σ is the logistic function, ∗ the elementwise product; p is the sum of the terms that a cell's `terms` names: `x` is W x + b,
`h` is U h, `t` is U tanh(h), `m` is V m with m = σ(p_1) ∗ h, the state after the reset.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.linear import Linear, bind_linear
from regard.nn.recurrent.cell import Blocks, Cell, CellList, CellState, GatedCell, Hidden, HiddenMemory, Twin, in_one_block
from regard.nn.recurrent.tape import MemoryTapeCell, TanhAttentionCell

__all__ = ["CELLS", "Cell", "CellList", "CellState", "GatedCell", "Hidden", "HiddenMemory"]


class TanhCell(GatedCell):
    """h = tanh(p)  (Elman 1990; the lectures' SimpleRNN)."""

    terms = ("xh",)
    twin = Twin(torch.rnn_tanh, 1)

    def update(self, pre: Blocks, state: CellState) -> Hidden:
        return Hidden(torch.tanh(pre[0]))


class ReluCell(GatedCell):
    """h = max(0, p)  (Le et al. 2015)."""

    terms = ("xh",)
    twin = Twin(torch.rnn_relu, 0)

    def update(self, pre: Blocks, state: CellState) -> Hidden:
        return Hidden(torch.relu(pre[0]))


class MemoryCell(GatedCell):
    """c = f ∗ c + i ∗ tanh(p_g),  h = o ∗ tanh(c): what all kinds of LSTM share."""

    State = HiddenMemory
    starts = ends = 2

    def end(self, state: CellState) -> tuple[Tensor, ...]:
        """The memory knows no bound, and what reads it (a decoder's first state) would be driven to saturation by it."""
        return state.hidden, torch.tanh(state.memory)

    def write(self, write: Any, forget: Any, candidate: Any, read: Any, state: CellState) -> HiddenMemory:
        memory = forget * state.memory + write * torch.tanh(candidate)
        return HiddenMemory(read * torch.tanh(self.norm_memory(memory)), memory)


class LSTMCell(MemoryCell):
    """i, f, o = σ(p_i), σ(p_f), σ(p_o)  (Hochreiter & Schmidhuber 1997, forget gate of Gers et al. 2000).

    The gates stand in torch.nn.LSTM's order: i, f, g, o.
    """

    terms = ("xh",) * 4
    twin = Twin(torch.lstm, 2)

    def update(self, pre: Blocks, state: CellState) -> HiddenMemory:
        write, forget, candidate, read = pre
        return self.write(torch.sigmoid(write), torch.sigmoid(forget), candidate, torch.sigmoid(read), state)


class AblatedLSTMCell(MemoryCell):
    """An LSTM with one gate fixed at 1, whose parameters do not exist (Jozefowicz et al. 2015).

    A library's LSTM computes it too: with weights of 0 and a bias of 30 for that gate, as σ(30) = 1 in float32.
    """

    terms = ("xh",) * 3
    twin = Twin(torch.lstm, 2)
    fixed: ClassVar[int]  # the gate's number in the LSTM's order

    @property
    def weights(self) -> list[Tensor]:
        open_gate = (0.0, 0.0, 30.0, 0.0)
        parts = [self.with_gate(weight, value) for weight, value in zip(super().weights, open_gate, strict=True)]
        return in_one_block(parts)

    def with_gate(self, weight: Tensor, value: float) -> Tensor:
        blocks = list(torch.split(weight, self.hidden_size))
        blocks.insert(self.fixed, torch.full_like(blocks[0], value))
        return torch.cat(blocks)

    def flatten(self, mode: int) -> None:
        """`weights` makes its own block."""


class LSTMWithoutInputCell(AblatedLSTMCell):
    """LSTM-i: i = 1."""

    fixed = 0

    def update(self, pre: Blocks, state: CellState) -> HiddenMemory:
        forget, candidate, read = pre
        return self.write(1.0, torch.sigmoid(forget), candidate, torch.sigmoid(read), state)


class LSTMWithoutForgetCell(AblatedLSTMCell):
    """LSTM-f: f = 1."""

    fixed = 1

    def update(self, pre: Blocks, state: CellState) -> HiddenMemory:
        write, candidate, read = pre
        return self.write(torch.sigmoid(write), 1.0, candidate, torch.sigmoid(read), state)


class LSTMWithoutOutputCell(AblatedLSTMCell):
    """LSTM-o: o = 1."""

    fixed = 3

    def update(self, pre: Blocks, state: CellState) -> HiddenMemory:
        write, forget, candidate = pre
        return self.write(torch.sigmoid(write), torch.sigmoid(forget), candidate, 1.0, state)


class LSTMForgetBiasCell(LSTMCell):
    """LSTM-b: the LSTM whose forget gate begins with a bias of 1, so that it begins open (Gers et al. 2000)."""

    def __init__(self, input_size: int, hidden_size: int, layer_norm: bool = False) -> None:
        super().__init__(input_size, hidden_size, layer_norm)
        biases: list[Any] = [self.norms["x"].bias, self.norms["h"].bias] if layer_norm else self.weights[2:]
        for bias, value in zip(biases, (1.0, 0.0), strict=True):
            nn.init.constant_(bias.data[hidden_size : 2 * hidden_size], value)


class PeepholeLSTMCell(MemoryCell):
    """i = σ(p_i + w_i ∗ c), f = σ(p_f + w_f ∗ c), o = σ(p_o + w_o ∗ c_new)  (Gers & Schmidhuber 2000)."""

    terms = ("xh",) * 4

    def build(self) -> None:
        super().build()
        self.peep = nn.Parameter(torch.empty(3, self.hidden_size))

    @property
    def vectors(self) -> Sequence[Tensor]:
        return self.peep.unbind(0)

    def update(self, pre: Blocks, state: CellState, *vectors: Any) -> HiddenMemory:
        write, forget, candidate, read = pre
        to_write, to_forget, to_read = vectors
        kept = torch.sigmoid(forget + to_forget * state.memory) * state.memory
        memory = kept + torch.sigmoid(write + to_write * state.memory) * torch.tanh(candidate)
        return HiddenMemory(torch.sigmoid(read + to_read * memory) * torch.tanh(self.norm_memory(memory)), memory)


class GRUCell(GatedCell):
    """r, z = σ(p_r), σ(p_z),  n = tanh(W x + r ∗ (U h)),  h = (1 - z) ∗ n + z ∗ h

    The form of cuDNN and torch.nn.GRU: the reset comes after the product, and z keeps. `gru_cho` is the lectures' form.
    """

    terms = ("xh", "xh", "h", "x")
    twin = Twin(torch.gru, 3)

    def update(self, pre: Blocks, state: CellState) -> Hidden:
        reset, keep, from_hidden, from_input = pre
        candidate = torch.tanh(from_input + torch.sigmoid(reset) * from_hidden)
        return Hidden(candidate + torch.sigmoid(keep) * (state.hidden - candidate))


class TwoProductCell(GatedCell):
    """h = (1 - z) ∗ h + z ∗ tanh(p_h), where p_h multiplies the state after the reset: p_r, p_z, p_h."""

    terms = ("xh", "xh", "xm")

    def update(self, pre: Blocks, state: CellState) -> Hidden:
        _, update, candidate = pre
        return Hidden(state.hidden + torch.sigmoid(update) * (torch.tanh(candidate) - state.hidden))


class ChoGRUCell(TwoProductCell):
    """z, r = σ(p_z), σ(p_r),  h = (1 - z) ∗ h + z ∗ tanh(W x + V (r ∗ h) + b)  (Cho et al. 2014, as lecture 004 prints it)."""


class MinimalGatedCell(GatedCell):
    """f = σ(p_f),  h = (1 - f) ∗ h + f ∗ tanh(W x + V (f ∗ h) + b)  (Zhou et al. 2016)."""

    terms = ("xh", "xm")

    def update(self, pre: Blocks, state: CellState) -> Hidden:
        forget, candidate = pre
        return Hidden(state.hidden + torch.sigmoid(forget) * (torch.tanh(candidate) - state.hidden))


class AsItIsCell(TwoProductCell):
    """A cell into one of whose sums x enters as it is, without a matrix. Where the input has another size than the state
    it is projected first, x' = P x, since a sum of unequal sizes means nothing; lecture 004 is silent on this."""

    as_it_is: ClassVar[int]  # that sum's place

    def build(self) -> None:
        super().build()
        same = self.input_size == self.hidden_size
        self.from_input = Linear(self.input_size, self.width - self.hidden_size)
        self.resize = None if same else Linear(self.input_size, self.hidden_size, bias=False)
        self.bias = nn.Parameter(torch.empty(self.hidden_size))

    def bind_project(self) -> Callable[[Tensor], Tensor]:
        product = bind_linear(self.from_input)
        resize = (lambda inputs: inputs) if self.resize is None else bind_linear(self.resize)

        def project(inputs: Float[Tensor, "*rows input"]) -> Float[Tensor, "*rows width"]:
            blocks = list(torch.split(product(inputs), self.hidden_size, dim=-1))
            blocks.insert(self.as_it_is, resize(inputs).to(blocks[0].dtype))
            return self.norm("x", torch.cat(blocks, dim=-1))

        return project

    def enter(self, projected: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        blocks = list(torch.split(projected, self.hidden_size, dim=-1))
        blocks[self.as_it_is] = self.as_is(blocks[self.as_it_is]) + self.bias
        return torch.cat(blocks, dim=-1)

    def as_is(self, inputs: Tensor) -> Tensor:
        return inputs


class MUT1Cell(AsItIsCell):
    """z = σ(W x + b),  r = σ(W x + U h + b),  h = tanh(V (r ∗ h) + tanh(x) + b) ∗ z + h ∗ (1 - z)  (Jozefowicz et al. 2015)."""

    terms = ("xh", "x", "xm")
    as_it_is = 2

    def as_is(self, inputs: Tensor) -> Tensor:
        return torch.tanh(inputs)


class MUT2Cell(AsItIsCell):
    """z = σ(W x + U h + b),  r = σ(x + U h + b),  h = tanh(V (r ∗ h) + W x + b) ∗ z + h ∗ (1 - z)."""

    as_it_is = 0


class MUT3Cell(TwoProductCell):
    """z = σ(W x + U tanh(h) + b),  r = σ(W x + U h + b),  h = tanh(V (r ∗ h) + W x + b) ∗ z + h ∗ (1 - z)."""

    terms = ("xh", "xt", "xm")


CELLS: dict[str, type[Cell]] = {
    "tanh": TanhCell,
    "relu": ReluCell,
    "lstm": LSTMCell,
    "lstm_f": LSTMWithoutForgetCell,
    "lstm_i": LSTMWithoutInputCell,
    "lstm_o": LSTMWithoutOutputCell,
    "lstm_b": LSTMForgetBiasCell,
    "lstm_peephole": PeepholeLSTMCell,
    "gru": GRUCell,
    "gru_cho": ChoGRUCell,
    "mut1": MUT1Cell,
    "mut2": MUT2Cell,
    "mut3": MUT3Cell,
    "mgu": MinimalGatedCell,
    "tanh_attention": TanhAttentionCell,
    "lstm_tape": MemoryTapeCell,
}
