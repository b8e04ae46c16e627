"""Convolutions over time: to both sides of a position or over its past alone, gated (ConvS2S) or dilated (ByteNet)."""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.dropout import Dropout
from regard.nn.linear import linear

States = Float[Tensor, "batch time size"]
Visible = Bool[Tensor, "batch time"]
History = Float[Tensor, "batch past _"]
Pass = Callable[[Tensor], Tensor]
HALF = 0.5**0.5  # √½ (x + y) varies as much as x and y do


class Convolution(nn.Module):
    """y_t = b + Σ_k W_k x_{t + k dilation}, one output where all `width` inputs are there: one product with [W_1 .. W_width].

    Weights are drawn so that inputs of variance 1 give outputs of the given `variance`. With `weight_norm`, W = g v / |v| for
    each output (Salimans & Kingma 2016).
    """

    def __init__(
        self, inputs: int, outputs: int, width: int = 1, dilation: int = 1, variance: float = 1.0, weight_norm: bool = False
    ) -> None:
        super().__init__()
        self.inputs, self.width, self.dilation = inputs, width, dilation
        self.past = (width - 1) * dilation  # how much shorter the output is
        self.weight = nn.Parameter(torch.randn(outputs, width * inputs) * (variance / (width * inputs)) ** 0.5)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.gain = nn.Parameter(self.weight.detach().norm(dim=1, keepdim=True)) if weight_norm else None

    @property
    def kernel(self) -> Float[Tensor, "output columns"]:
        return self.weight if self.gain is None else torch._weight_norm(self.weight, self.gain, 0)

    def bind(self) -> Pass:
        """The convolution as a function for one pass over a sequence."""
        kernel = self.kernel
        return lambda inputs: linear(self.columns(inputs), kernel, self.bias)

    def forward(self, inputs: Float[Tensor, "batch time input"]) -> Float[Tensor, "batch fewer output"]:
        return self.bind()(inputs)

    def columns(self, inputs: Float[Tensor, "batch time input"]) -> Float[Tensor, "batch fewer columns"]:
        """What each output reads, side by side."""
        if self.width == 1:
            return inputs
        time, starts = inputs.shape[1] - self.past, range(0, self.past + 1, self.dilation)
        return torch.cat([inputs[:, start : start + time] for start in starts], dim=-1)

    def around(self, inputs: Float[Tensor, "batch time input"], visible: Visible) -> Float[Tensor, "batch time output"]:
        """Each position sees as far to the left as to the right; beyond a row's end there is nothing."""
        before = self.past // 2
        clean = inputs.masked_fill(~visible[..., None], 0.0)
        return self.bind()(functional.pad(clean, (0, 0, before, self.past - before)))

    def start(self, like: Float[Tensor, "rows *any"]) -> History:
        """The past of the first position."""
        return like.new_zeros(like.shape[0], self.past, self.inputs, dtype=self.weight.dtype)

    def bind_after(self) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Each position sees itself and its past: the same for a whole sequence and for one step."""
        convolve = self.bind()

        def after(
            inputs: Float[Tensor, "batch time input"], history: History
        ) -> tuple[Float[Tensor, "batch time output"], History]:
            whole = torch.cat([history.to(inputs.dtype), inputs], dim=1)
            return convolve(whole), whole[:, inputs.shape[1] :]

        return after


def gated(states: Float[Tensor, "batch time twice"]) -> Float[Tensor, "batch time half"]:
    """a ∗ σ(b) of [a; b], the gated linear unit (Dauphin et al. 2016); in variance it takes 4 times what it gives."""
    return functional.glu(states, dim=-1)


class GatedBlock(nn.Module):
    """√½ (x + glu(W x_{t-k} .. x_{t+k} + b))  (Gehring et al. 2017, eq. in 3.2), x projected where the size changes."""

    def __init__(self, inputs: int, size: int, width: int, dropout: float = 0.0, weight_norm: bool = False) -> None:
        super().__init__()
        self.dropout, self.size = Dropout(dropout), size
        self.convolution = Convolution(inputs, 2 * size, width, variance=4 * (1 - dropout), weight_norm=weight_norm)
        self.project = Convolution(inputs, size, weight_norm=weight_norm) if inputs != size else None

    def bind_residual(self) -> Pass:
        return (lambda states: states) if self.project is None else self.project.bind()

    def forward(self, states: Float[Tensor, "batch time input"], visible: Visible) -> Float[Tensor, "batch time size"]:
        found = gated(self.convolution.around(self.dropout(states), visible))
        return HALF * (self.bind_residual()(states) + found)


class DilatedBlock(nn.Module):
    """x + W₃ φ(conv(φ(W₁ φ(x)))) with φ = relu of the layer norm: 2d elements outside, d inside
    (Kalchbrenner et al. 2016, figure 3 left)."""

    def __init__(self, size: int, width: int, dilation: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(numbers) for numbers in (2 * size, size, size))
        self.narrow, self.widen = Convolution(2 * size, size, variance=2.0), Convolution(size, 2 * size)
        self.convolution = Convolution(size, size, width, dilation, variance=2.0)
        self.dropout = Dropout(dropout)

    def inside(self, states: Float[Tensor, "batch time outside"]) -> Float[Tensor, "batch time inside"]:
        """What the convolution reads."""
        return self.activate(1, self.narrow(self.activate(0, states)))

    def join(self, states: States, found: Float[Tensor, "batch time inside"]) -> States:
        at_least_float32: Tensor = self.dropout(self.widen(self.activate(2, found)))
        return states + at_least_float32

    def activate(self, at: int, states: States) -> States:
        return functional.relu(self.norms[at](states))

    def forward(self, states: States, visible: Visible) -> States:
        return self.join(states, self.convolution.around(self.inside(states), visible))

    def after(self, states: States, history: History) -> tuple[States, History]:
        """Over the past alone."""
        found, history = self.convolution.bind_after()(self.inside(states), history)
        return self.join(states, found), history


def start_histories(blocks: Iterable[nn.Module], like: Float[Tensor, "rows _"]) -> tuple[Float[Tensor, "rows _ _"], ...]:
    """The past of the first position, for each block's convolution."""
    return tuple(block.convolution.start(like) for block in blocks)  # type: ignore[operator, union-attr]


def scale_gradient(states: Float[Tensor, "*any"], factor: float) -> Float[Tensor, "*any"]:
    """The same values, whose gradient is multiplied."""
    return states.detach() + factor * (states - states.detach())
