"""y = x Wᵀ + b, by the faster of two libraries."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

WORTH_IT = 1 << 16  # numbers in W; below this the two libraries take the same time (benchmarks/products.py)
ONE_DNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")  # type: ignore[no-untyped-call]


def product(
    inputs: Float[Tensor, "*rows input"], weight: Float[Tensor, "output input"], bias: Float[Tensor, "output"] | None = None,
    relu: bool = False,
) -> Float[Tensor, "*rows output"]:  # fmt: skip
    """On a CPU and in float32 PyTorch multiplies with MKL, which oneDNN beats on the AMD processors we have
    (benchmarks/products.py). It is reached through the operator that torch.compile's own CPU code calls, which has no
    gradient: whoever needs one takes `shared`. `relu`: max(0, y), taken where y is written."""
    if one_dnn_applies(inputs, weight):
        result: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "relu" if relu else "none", [], "")
        return result
    found = functional.linear(inputs, weight, bias)
    return found.relu_() if relu else found


def one_dnn_applies(inputs: Tensor, weight: Tensor) -> bool:
    plain = inputs.device.type == "cpu" and inputs.dtype == weight.dtype == torch.float32
    return (
        bool(ONE_DNN) and plain and weight.numel() >= WORTH_IT and inputs.numel() > 0 and not torch.is_autocast_enabled("cpu")
    )


def packed(weight: Float[Tensor, "output input"], rows: int, bias: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """`product` with one weight, used at many steps for so many rows: oneDNN lays it out once instead of at every step."""
    if not one_dnn_applies(weight[:1], weight):
        return lambda inputs: functional.linear(inputs, weight, bias)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    return lambda inputs: torch.ops.mkldnn._linear_pointwise(inputs, laid_out, bias, "none", [], "")
