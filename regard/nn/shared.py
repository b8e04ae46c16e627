"""One linear map used at every step of a loop: its weight's gradient is one product over all steps, not one a step."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.product import product

Record = list[tuple[Tensor, Tensor]]  # (input, gradient of the output) of each use, filled while going backward


class _Tie(torch.autograd.Function):
    """The identity on W and b. Backward runs after every use has: dW = Σ_t g_tᵀ x_t and db = Σ_t g_t, over all t at once."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, record: Record) -> tuple[Tensor, Tensor | None]:
        ctx.record = record
        ctx.set_materialize_grads(False)
        return weight.view_as(weight), None if bias is None else bias.view_as(bias)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> tuple[Tensor | None, Tensor | None, None]:
        if not ctx.record:
            return None, None, None
        inputs, gradients = (torch.cat(side) for side in zip(*ctx.record, strict=True))
        ctx.record.clear()  # a second backward through a retained graph starts anew
        bias = gradients.sum(0) if ctx.needs_input_grad[1] else None
        return gradients.T @ inputs, bias, None


class _Use(torch.autograd.Function):
    """y = x Wᵀ + b, whose backward leaves (x, g) in the record instead of a gradient of W."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, record: Record) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.record = record
        return product(inputs, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        inputs, weight = ctx.saved_tensors
        (gradient,) = gradients
        ctx.record.append((inputs.flatten(0, -2), gradient.flatten(0, -2)))
        return product(gradient, weight.T), None, None, None


def shared(linear: nn.Linear) -> Callable[[Float[Tensor, "*rows input"]], Float[Tensor, "*rows output"]]:
    """`linear` as a function for one pass over a sequence. Adding up [output, input] gradients at every step is what
    makes plain loops slow: the sum moves W's size through memory T times."""
    if not (torch.is_grad_enabled() and linear.weight.requires_grad):
        return lambda inputs: product(inputs, linear.weight, linear.bias)
    weight: Tensor = linear.weight
    bias: Tensor | None = linear.bias
    device = weight.device.type
    if torch.is_autocast_enabled(device):  # cast once a pass instead of once a step
        kind = torch.get_autocast_dtype(device)
        weight, bias = weight.to(kind), None if bias is None else bias.to(kind)
    record: Record = []
    weight, bias = _Tie.apply(weight, bias, record)  # type: ignore[no-untyped-call]

    def use(inputs: Tensor) -> Tensor:
        return _Use.apply(inputs.to(weight.dtype), weight, bias, record)  # type: ignore[no-untyped-call, no-any-return]

    return use


class Linear(nn.Linear):
    """nn.Linear by way of `product`."""

    def forward(self, input: Float[Tensor, "*rows input"]) -> Float[Tensor, "*rows output"]:
        return shared(self)(input)
