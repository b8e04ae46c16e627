"""y = x Wᵀ + b for inference, of weights that are laid out once. PRECISIONS names the ways."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int8
from torch import Tensor, nn

from regard.engine import native
from regard.errors import UserError
from regard.nn.linear import ONE_DNN, LinearForInference, Projection, matmul
from regard.nn.rounding import LARGEST, TINY, RoundedMatrix, rounded

Product = Callable[[Float[Tensor, "*rows input"]], Float[Tensor, "*rows output"]]
Pack = Callable[[Float[Tensor, "output input"], Float[Tensor, "output"] | None], Product]


def projection(layer: nn.Linear | LinearForInference) -> Projection:
    """Its weights, without their history."""
    return Projection(layer.weight.detach(), None if layer.bias is None else layer.bias.detach())


def float32(weight: Float[Tensor, "output input"], bias: Float[Tensor, "output"] | None) -> Product:
    """Ours is of one thread, and the faster one of few rows (benchmarks/float32_products.py)."""
    if (own := native.library()) is None or torch.get_num_threads() > 1:
        return by_operators(weight, bias)
    return native.float32_product(own, weight, bias)


def by_operators(weight: Float[Tensor, "output input"], bias: Float[Tensor, "output"] | None) -> Product:
    if not ONE_DNN:
        return lambda inputs: matmul(inputs, weight, bias)
    laid_out = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)
    return lambda inputs: torch.ops.mkldnn._linear_pointwise(inputs, laid_out, bias, "none", [], "")


def bfloat16(weight: Float[Tensor, "output input"], bias: Float[Tensor, "output"] | None) -> Product:
    """Both factors rounded to bfloat16; sums in float32, as what is between products."""
    product = by_operators(weight.bfloat16(), None if bias is None else bias.bfloat16())
    return lambda inputs: product(inputs.bfloat16()).float()


def int8(weight: Float[Tensor, "output input"], bias: Float[Tensor, "output"] | None) -> Product:
    """W ≈ s Q, a scale s for each row of W and integers Q; x ≈ r P likewise, row by row, so that the words of a sentence are
    rounded alike in any batch. The product of integers is exact: y = s r (P Qᵀ) + b."""
    integers, scales = rounded(weight)
    if (own := native.library()) is None:
        return one_dnn(integers, scales, bias)
    tiles = native.Tiles(own, integers)
    if isinstance(weight, RoundedMatrix):
        weight.integers = tiles
    return native.int8_product(own, tiles, scales, bias)


def one_dnn(
    integers: Int8[Tensor, "output input"], scales: Float[Tensor, "output"], bias: Float[Tensor, "output"] | None
) -> Product:
    if not ONE_DNN:
        raise UserError("int8 needs a PyTorch with oneDNN, and this one has none; take float32 or bfloat16")
    levels = LARGEST if torch.cpu._is_vnni_supported() else LARGEST // 2  # older instructions add pairs up in 16 bits
    laid_out = torch.ops.onednn.qlinear_prepack(integers, None)
    zeros, linear = torch.zeros(len(scales), dtype=torch.long), torch.ops.onednn.qlinear_pointwise
    rest: tuple[Any, ...] = (scales, zeros, None, 1.0, 0, torch.float32, "none", [], "")

    def product(inputs: Float[Tensor, "*rows input"]) -> Float[Tensor, "*rows output"]:
        largest = inputs.abs().amax(-1, keepdim=True).clamp_min_(TINY)
        whole = (inputs / largest).mul_(levels).round_().add_(levels + 1).to(torch.uint8)  # unsigned, as the instructions want
        found: Tensor = linear(whole, 1 / levels, levels + 1, laid_out, *rest)
        return found.mul_(largest) if bias is None else torch.addcmul(bias, found, largest)

    return product


PRECISIONS: dict[str, Pack] = {"float32": float32, "bfloat16": bfloat16, "int8": int8}
