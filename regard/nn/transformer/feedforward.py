"""Networks that are applied at every position alike. One class a kind; FEEDFORWARDS names them."""

from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from regard.nn.dropout import Dropout
from regard.nn.kernels.layers import activation as kernels
from regard.nn.linear import Linear, lowered, product, weight_gradients

States = Float[Tensor, "*rows size"]


class Fed(NamedTuple):
    """What came out, and what it costs beside the loss (experts that are not used alike), a target token."""

    states: States
    cost: Float[Tensor, ""] | None = None
    bias: Float[Tensor, "size"] | None = None  # still to be added: on a GPU whoever joins the states does it on the way


class _ReluNetwork(torch.autograd.Function):
    """y = W₂ h + b₂ of h = max(0, W₁ x + b₁): there is no h but this one, and dh becomes d(W₁ x + b₁) where it lies."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, enter: Tensor, entering: Tensor, leave: Tensor, leaving: Tensor) -> Tensor:
        inner = product(states, enter, entering, relu=True)
        ctx.save_for_backward(states, enter, inner, leave)
        return product(inner, leave, leaving)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (states, enter, inner, leave) = gradients, ctx.saved_tensors
        wanted, slope = ctx.needs_input_grad, product(gradient, leave.T)
        torch.ops.aten.threshold_backward.grad_input(slope, inner, 0, grad_input=slope)
        back = product(slope, enter.T) if wanted[0] else None
        return back, *weight_gradients(states, slope, wanted[1:3]), *weight_gradients(inner, gradient, wanted[3:])


class FeedForward(nn.Module):
    """W₂ drop(max(0, W₁ x + b₁)) + b₂  (Vaswani et al. 2017, eq. 2)."""

    kind: ClassVar[str] = "relu"  # its activation's name among the kernels

    def __init__(self, size: int, inner: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.enter, self.leave = Linear(size, inner), Linear(inner, size)
        self.dropout = Dropout(dropout)

    def activate(self, states: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows inner"]:
        return functional.relu(states)

    def forward(self, states: States, visible: Bool[Tensor, "*rows"] | None = None) -> Fed:
        """`visible` says which rows are no padding."""
        rate = self.dropout.p if self.training else 0.0
        if kernels.applies(states):
            if self.kind == "relu" and not rate and states.is_cuda:
                inner = kernels.relu_product(states, self.enter.weight, self.enter.bias)
            else:
                inner = kernels.activate(self.enter.product(states), self.enter.bias, kind=self.kind, rate=rate)
            return Fed(self.leave.product(inner), bias=self.leave.bias)
        if self.kind == "relu" and not rate and states.device.type == "cpu" and torch.is_grad_enabled():
            sides = states, self.enter.weight, self.enter.bias, self.leave.weight, self.leave.bias
            return Fed(_ReluNetwork.apply(*(side.to(lowered(side)) for side in sides)))  # type: ignore[no-untyped-call]
        return Fed(self.leave(self.dropout(self.activate(self.enter(states)))))


class GELU(FeedForward):
    """W₂ gelu(W₁ x + b₁) + b₂  (Hendrycks & Gimpel 2016)."""

    kind = "gelu"

    def activate(self, states: Float[Tensor, "*rows inner"]) -> Float[Tensor, "*rows inner"]:
        return functional.gelu(states)


class SwiGLU(FeedForward):
    """W₂ (swish(W₁ x + b₁) * (W₃ x + b₃)) + b₂  (Shazeer 2020)."""

    kind = "swiglu"

    def __init__(self, size: int, inner: int, dropout: float = 0.0) -> None:
        super().__init__(size, inner, dropout)
        self.enter = Linear(size, 2 * inner)  # W₁ and W₃

    def activate(self, states: Float[Tensor, "*rows twice"]) -> Float[Tensor, "*rows inner"]:
        opened, gate = states.chunk(2, dim=-1)
        return functional.silu(opened) * gate


FEEDFORWARDS: dict[str, type[FeedForward]] = {"relu": FeedForward, "gelu": GELU, "swiglu": SwiGLU}
