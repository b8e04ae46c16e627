"""y = x Wᵀ + b: by the faster of two libraries, and as a function whose weight's gradient is taken once for all its uses.

`matmul` has no gradient; `linear` is used once, `bind_linear` at every step of a loop: its weight's gradient is one product
over all steps, not one per step.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from regard.nn.autograd import apply

WORTH_IT = 1 << 16  # elements of W; below this the two libraries take the same time (benchmarks/products.py)
ONE_DNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]


def matmul(
    inputs: Float[Tensor, "*rows input"], weight: Float[Tensor, "output input"], bias: Float[Tensor, "output"] | None = None,
    relu: bool = False,
) -> Float[Tensor, "*rows output"]:  # fmt: skip
    """On a CPU and in float32 PyTorch multiplies with MKL, which oneDNN beats on the AMD processors we have
    (benchmarks/products.py). It is reached through the operator that torch.compile's own CPU code calls, which has no
    gradient: whoever needs one takes `linear`. `relu`: max(0, y), taken where y is written."""
    if one_dnn_applies(inputs, weight):
        result: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "relu" if relu else "none", [], "")
        return result
    found = functional.linear(inputs, weight, bias)
    return found.relu_() if relu else found


def one_dnn_applies(inputs: Tensor, weight: Tensor) -> bool:
    if torch.compiler.is_exporting():  # an operator that only PyTorch knows
        return False
    plain = inputs.device.type == "cpu" and inputs.dtype == weight.dtype == torch.float32
    return (
        bool(ONE_DNN) and plain and weight.numel() >= WORTH_IT and inputs.numel() > 0 and not torch.is_autocast_enabled("cpu")
    )


def packed(weight: Float[Tensor, "output input"], rows: int, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """`matmul` with one weight, used at many steps for so many rows: oneDNN lays it out once instead of at every step."""
    if not one_dnn_applies(weight[:1], weight):
        return lambda inputs: functional.linear(inputs, weight, bias)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return lambda inputs: torch.ops.mkldnn._linear_pointwise(inputs, laid_out, bias, "none", [], "")


class Projection(NamedTuple):
    """W and b of a linear map."""

    weight: Float[Tensor, "output input"]
    bias: Float[Tensor, "output"] | None


def joined(parts: Sequence[Projection]) -> Projection:
    """Projections of one input as one."""
    weight = torch.cat([part.weight for part in parts])
    if all(part.bias is None for part in parts):
        return Projection(weight, None)
    biases = [part.weight.new_zeros(len(part.weight)) if part.bias is None else part.bias for part in parts]
    return Projection(weight, torch.cat(biases))


class Record:
    """(input, gradient of the output) of each use, filled while going backward. What a pass backward that did not reach
    the weight has left is dropped; tensors are kept without their history, which would hold the record in a cycle."""

    def __init__(self) -> None:
        self.uses: list[tuple[Tensor, Tensor]] = []
        self.task = -1

    def add(self, inputs: Tensor, gradient: Tensor) -> None:
        if self.task != (task := torch._C._current_graph_task_id()):
            self.uses, self.task = [], task
        self.uses.append((inputs.detach(), gradient.detach()))

    def joined(self, dim: int) -> tuple[Tensor, Tensor] | None:
        """All inputs and all gradients, each as one tensor; the record is empty again."""
        if not self.uses or self.task != torch._C._current_graph_task_id():
            return None
        uses, self.uses = self.uses, []
        inputs, gradients = (side[0] if len(side) == 1 else torch.cat(side, dim=dim) for side in zip(*uses, strict=True))
        return inputs, gradients


class _TieWeight(torch.autograd.Function):
    """The identity on W and b. Backward runs after every use has: dW = Σ_t g_tᵀ x_t and db = Σ_t g_t, over all t at once."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor | None, record: Record) -> tuple[Tensor, Tensor | None]:
        ctx.record = record
        ctx.set_materialize_grads(False)
        return weight.view_as(weight), None if bias is None else bias.view_as(bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Any) -> tuple[Tensor | None, Tensor | None, None]:
        if (both := ctx.record.joined(dim=0)) is None:
            return None, None, None
        inputs, gradients = both
        return *weight_gradients(inputs, gradients, (True, ctx.needs_input_grad[1])), None


class _UseWeight(torch.autograd.Function):
    """y = x Wᵀ + b, whose backward leaves (x, g) in the record instead of a gradient of W."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, record: Record) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        ctx.record = record
        return matmul(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        inputs, weight = ctx.saved_tensors
        (gradient,) = gradients
        ctx.record.add(inputs.flatten(0, -2), gradient.flatten(0, -2))
        return matmul(gradient, weight.T), None, None, None


class LinearForInference(nn.Module):
    """A Linear with another way to its product, which has no gradient; the weights stay for whoever reads them."""

    weight: Tensor
    bias: Tensor | None
    in_features: int
    out_features: int

    def __init__(self, layer: "nn.Linear | LinearForInference", product: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.weight, self.bias, self.product = layer.weight, layer.bias, product
        self.in_features, self.out_features = layer.in_features, layer.out_features

    def forward(self, input: Float[Tensor, "*rows input"]) -> Float[Tensor, "*rows output"]:
        return self.product(input)


AnyLinear = nn.Linear | Projection | LinearForInference  # Projection: with dropped weights


def bind_linear(layer: AnyLinear) -> Callable[[Float[Tensor, "*rows input"]], Float[Tensor, "*rows output"]]:
    """`layer` as a function for one pass over a sequence."""
    if isinstance(layer, LinearForInference):
        return layer.product
    return bind_projection(layer.weight, layer.bias)


def bind_projection(
    weight: Float[Tensor, "output input"], bias: Float[Tensor, "output"] | None
) -> Callable[[Float[Tensor, "*rows input"]], Float[Tensor, "*rows output"]]:
    """x Wᵀ + b as a function for one pass. Adding up [output, input] gradients at every step is what makes plain loops
    slow: the sum moves W's size through memory T times."""
    if not torch.is_grad_enabled():
        return lambda inputs: matmul(inputs, weight, bias)
    if not weight.requires_grad:  # frozen: its inputs may still learn, and `matmul` has no gradient
        return lambda inputs: functional.linear(inputs, weight, bias)
    kind = lowered(weight)  # cast once a pass instead of once a step
    weight, bias = weight.to(kind), None if bias is None else bias.to(kind)
    record = Record()
    tied: Tensor
    tied, offset = apply(_TieWeight, weight, bias, record)

    def use(inputs: Tensor) -> Tensor:
        return apply(_UseWeight, inputs.to(tied.dtype), tied, offset, record)

    return use


def lowered(tensor: Tensor) -> torch.dtype:
    """The dtype that autocast multiplies in; the tensor's own without autocast."""
    device = tensor.device.type
    return torch.get_autocast_dtype(device) if device != "meta" and torch.is_autocast_enabled(device) else tensor.dtype


def at_least_float32(tensor: Tensor) -> Tensor:
    """In float32, or float64 if it was: for sums of many terms."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def weight_gradients(
    inputs: Float[Tensor, "*rows input"], gradient: Float[Tensor, "*rows output"], wanted: tuple[bool, bool]
) -> tuple[Float[Tensor, "output input"] | None, Float[Tensor, "output"] | None]:
    """Of W and b in y = x Wᵀ + b: gᵀ x and Σ g."""
    rows = gradient.flatten(0, -2)
    return rows.T @ inputs.flatten(0, -2) if wanted[0] else None, rows.sum(0) if wanted[1] else None


class _Linear(torch.autograd.Function):
    """y = x Wᵀ + b, all of whose gradients are taken at once."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(inputs, weight)
        return matmul(inputs, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (gradient,), (inputs, weight) = gradients, ctx.saved_tensors
        back = matmul(gradient, weight.T) if ctx.needs_input_grad[0] else None
        return back, *weight_gradients(inputs, gradient, ctx.needs_input_grad[1:])


class Linear(nn.Linear):
    """nn.Linear by way of `matmul`."""

    def forward(self, input: Float[Tensor, "*rows input"]) -> Float[Tensor, "*rows output"]:
        return linear(input, self.weight, self.bias)

    def matmul(self, input: Float[Tensor, "*rows input"]) -> Float[Tensor, "*rows output"]:
        """x Wᵀ, without the bias."""
        return linear(input, self.weight, None)


def linear(
    inputs: Float[Tensor, "*rows input"], weight: Float[Tensor, "output input"], bias: Float[Tensor, "output"] | None
) -> Float[Tensor, "*rows output"]:
    """x Wᵀ + b, used once: nothing to record, and on a GPU nothing to gain."""
    if inputs.is_cuda:
        return functional.linear(inputs, weight, bias)
    if not torch.is_grad_enabled():
        return matmul(inputs, weight, bias)
    kind = lowered(weight)
    return apply(_Linear, inputs.to(kind), weight.to(kind), None if bias is None else bias.to(kind))
