"""Normalisation, and how a sublayer's output is added to its input. One class per norm; NORMS names them."""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.dropout import Dropout
from regard.nn.kernels.layers import norm as kernels
from regard.nn.transformer.feedforward import SublayerOutput

States = Float[Tensor, "*batch size"]
Visible = Bool[Tensor, "*batch"]


class LayerNorm(nn.Module):
    """g (x - mean) / √(variance + ε) + b over the elements of one position  (Ba et al. 2016)."""

    fused: ClassVar[str | None] = "layer"  # its name among the kernels
    eps = 1e-5

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.offset: nn.Parameter | None = nn.Parameter(torch.zeros(size))

    def forward(self, states: States, visible: Visible | None = None) -> States:
        return functional.layer_norm(states, self.weight.shape, self.weight, self.offset, self.eps)


class RMSNorm(LayerNorm):
    """g x / √(mean of x² + ε)  (Zhang & Sennrich 2019)."""

    fused = "rms"

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.offset = None

    def forward(self, states: States, visible: Visible | None = None) -> States:
        exact = torch.promote_types(states.dtype, self.weight.dtype)  # autocast does not know this one
        return functional.rms_norm(states.to(exact), self.weight.shape, self.weight, self.eps).to(states.dtype)


class BatchNorm(LayerNorm):
    """g (x - mean) / √(variance + ε) + b of each element over all positions of a batch, padding aside  (Ioffe & Szegedy 2015).

    In evaluation mode the means are those of training. In training every position of a batch, later words of a target too,
    shifts every other one: what the lecture holds against it.
    """

    fused = None
    FORGET = 0.1
    offset: nn.Parameter
    mean: Float[Tensor, "size"]
    variance: Float[Tensor, "size"]

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("variance", torch.ones(size))

    def forward(self, states: States, visible: Visible | None = None) -> States:
        mean, variance = self.moments(states, visible) if self.training else (self.mean, self.variance)
        return (states - mean) * (variance + self.eps).rsqrt() * self.weight + self.offset

    def moments(self, states: States, visible: Visible | None) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(states.dtype, torch.float32)
        counts = states.new_ones(states.shape[:2], dtype=exact) if visible is None else visible.to(exact)
        number = counts.sum()
        share = (counts / number.clamp(min=1))[..., None]
        mean = (states * share).sum(dim=(0, 1))
        variance = ((states - mean).square() * share).sum(dim=(0, 1))
        with torch.no_grad():
            unbiased = variance * number / (number - 1).clamp(min=1)  # their algorithm 2, line 10
            self.mean.lerp_(mean.to(self.mean.dtype), self.FORGET)
            self.variance.lerp_(unbiased.to(self.variance.dtype), self.FORGET)
        return mean, variance


class ResidualStream(NamedTuple):
    """What flows through a stack: the sum that sublayers add to, and what the next one reads."""

    total: States
    read: States


class AddNorm(nn.Module):
    """Post-norm: norm(h + drop(f(h)))  (Vaswani et al. 2017). Pre-norm: h + drop(f(norm(h))), written so that each sublayer's
    norm is the one that follows it, for one kernel does both; the first norm stands before the stack."""

    def __init__(self, norm: LayerNorm, dropout: float, before: bool) -> None:
        super().__init__()
        self.norm, self.dropout, self.before = norm, Dropout(dropout), before

    def forward(self, stream: ResidualStream, fed: SublayerOutput, visible: Visible | None) -> ResidualStream:
        if self.norm.fused is not None and kernels.applies(fed.states):
            return self.by_kernel(stream.total, fed, self.norm.fused)
        states = fed.states if fed.bias is None else fed.states + fed.bias
        total = self.dropout.added(stream.total, states)
        normed = self.norm(total, visible)
        return ResidualStream(total if self.before else normed, normed)

    def by_kernel(self, residual: States, fed: SublayerOutput, kind: str) -> ResidualStream:
        """Post-norm: what is normed is read twice, by the next sublayer and by what adds its output."""
        kernel = kernels.add_norm if self.before else kernels.add_norm_for_two
        rate, norm = self.dropout.p if self.training else 0.0, self.norm
        joined = kernel(
            fed.states, residual.to(fed.states.dtype), fed.bias, norm.weight, norm.offset, rate=rate, kind=kind, eps=norm.eps
        )
        return ResidualStream(*joined)


NORMS: dict[str, type[LayerNorm]] = {"layer": LayerNorm, "rms": RMSNorm, "batch": BatchNorm}
