"""Position-wise feed-forward networks. One class per kind; FEEDFORWARDS names them."""

from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from regard.nn.autograd import apply
from regard.nn.dropout import Dropout
from regard.nn.kernels.layers import activation as kernels
from regard.nn.linear import Linear, lowered, matmul, weight_gradients

States = Float[Tensor, "*rows size"]


class SublayerOutput(NamedTuple):
    """What a sublayer gives, and what it adds to the loss per target token (experts that are not used evenly)."""

    states: States
    cost: Float[Tensor, ""] | None = None
    bias: Float[Tensor, "size"] | None = None  # still to be added: on a GPU the kernel of AddNorm does it


class _ReluNetwork(torch.autograd.Function):
    """y = W₂ h + b₂ of h = max(0, W₁ x + b₁): there is no h but this one, and dh becomes d(W₁ x + b₁) where it lies."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, up: Tensor, up_bias: Tensor, down: Tensor, down_bias: Tensor) -> Tensor:
        inner = matmul(states, up, up_bias, relu=True)
        ctx.save_for_backward(states, up, inner, down)
        return matmul(inner, down, down_bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (states, up, inner, down) = gradients, ctx.saved_tensors
        wanted, inner_gradient = ctx.needs_input_grad, matmul(gradient, down.T)
        torch.ops.aten.threshold_backward.grad_input(inner_gradient, inner, 0, grad_input=inner_gradient)
        by_states = matmul(inner_gradient, up.T) if wanted[0] else None
        by_up = weight_gradients(states, inner_gradient, wanted[1:3])
        return by_states, *by_up, *weight_gradients(inner, gradient, wanted[3:])


class FeedForward(nn.Module):
    """W₂ drop(max(0, W₁ x + b₁)) + b₂  (Vaswani et al. 2017, eq. 2)."""

    kind: ClassVar[str] = "relu"  # its activation's name among the kernels

    def __init__(self, size: int, inner: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.up, self.down = Linear(size, inner), Linear(inner, size)
        self.dropout = Dropout(dropout)

    def activate(self, states: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows inner"]:
        return functional.relu(states)

    def forward(self, states: States, visible: Bool[Tensor, "*rows"] | None = None) -> SublayerOutput:
        """`visible` says which rows are no padding."""
        rate = self.dropout.p if self.training else 0.0
        if self.kind in kernels.KINDS and kernels.applies(states):
            if self.kind == "relu" and not rate and states.is_cuda:
                inner = kernels.relu_product(states, self.up.weight, self.up.bias)
            else:
                inner = kernels.activate(self.up.matmul(states), self.up.bias, kind=self.kind, rate=rate)
            return SublayerOutput(self.down.matmul(inner), bias=self.down.bias)
        if self.kind == "relu" and not rate and states.device.type == "cpu" and torch.is_grad_enabled():
            sides = states, self.up.weight, self.up.bias, self.down.weight, self.down.bias
            return SublayerOutput(apply(_ReluNetwork, *(side.to(lowered(side)) for side in sides)))
        return SublayerOutput(self.down(self.dropout(self.activate(self.up(states)))))


class GELU(FeedForward):
    """W₂ gelu(W₁ x + b₁) + b₂  (Hendrycks & Gimpel 2016)."""

    kind = "gelu"

    def activate(self, states: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows inner"]:
        return functional.gelu(states)


class Swish(FeedForward):
    """W₂ swish(W₁ x + b₁) + b₂ with swish(x) = x σ(x)  (Ramachandran et al. 2017)."""

    kind = "swish"

    def activate(self, states: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows inner"]:
        return functional.silu(states)


class SwiGLU(FeedForward):
    """W₂ (swish(W₁ x + b₁) * (W₃ x + b₃)) + b₂  (Shazeer 2020)."""

    kind = "swiglu"

    def __init__(self, size: int, inner: int, dropout: float = 0.0) -> None:
        super().__init__(size, inner, dropout)
        self.up = Linear(size, 2 * inner)  # W₁ and W₃

    def activate(self, states: Float[Tensor, "*rows twice"]) -> Float[Tensor, "*rows inner"]:
        opened, gate = states.chunk(2, dim=-1)
        return functional.silu(opened) * gate


FEEDFORWARDS: dict[str, type[FeedForward]] = {"relu": FeedForward, "gelu": GELU, "swish": Swish, "swiglu": SwiGLU}
