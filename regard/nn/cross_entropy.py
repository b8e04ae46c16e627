"""Cross-entropy of a linear output layer, in chunks of rows: the logits of all positions never exist together."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn.product import product

CHUNK = {"cpu": 1 << 21, "cuda": 1 << 27}  # logits at a time: what stays in a CPU's cache; what fills a GPU


class _LinearCrossEntropy(torch.autograd.Function):
    """Loss and gradients of a chunk are taken while its logits are there; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, target: Tensor, smoothing: float, learn: bool
    ) -> Tensor:
        total = torch.zeros((), dtype=torch.float32, device=inputs.device)
        kinds = (inputs.dtype, torch.float32, torch.float32) if inputs.dtype == torch.bfloat16 else (None, None, None)
        sides = zip((inputs, weight, bias), kinds, strict=True)  # sums over chunks are kept in float32 at the least
        gradients = [torch.zeros_like(tensor, dtype=kind) for tensor, kind in sides] if learn else []
        rows = max(1, CHUNK.get(inputs.device.type, 1 << 21) // len(weight))
        for begin in range(0, len(inputs), rows):
            part = slice(begin, begin + rows)
            logits = product(inputs[part], weight, bias).float()
            loss, slope = chunk_loss(logits, target[part], smoothing)
            total += loss
            if learn:
                slope = slope.to(inputs.dtype)
                gradients[0][part] = product(slope, weight.T)
                add_product(gradients[1], slope.T, inputs[part])
                gradients[2] += slope.sum(dim=0)
        ctx.save_for_backward(*gradients)
        ctx.kinds = [inputs.dtype, weight.dtype, bias.dtype]
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = outer
        return *((gradient * scale).to(kind) for gradient, kind in zip(ctx.saved_tensors, ctx.kinds, strict=True)), *(None,) * 3


def add_product(total: Float[Tensor, "a c"], left: Float[Tensor, "a b"], right: Float[Tensor, "b c"]) -> None:
    """total += left right, in place where the types allow it."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


def chunk_loss(
    logits: Float[Tensor, "rows vocabulary"], target: Int[Tensor, "rows"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, "rows vocabulary"]]:
    """-Σ q log p, with q = (1 - ε) [the truth] + ε / V, and its slope p - q.

    log Σ e^l comes from the likeliest word, max l - log p: its probability is at least 1 / V and so never lost.
    """
    rows, each = torch.arange(len(target), device=target.device), smoothing / logits.shape[1]
    slope = logits.softmax(dim=1)
    best, place = logits.max(dim=1)
    log_sum = best - slope[rows, place].log()
    loss = ((1 - smoothing) * (log_sum - logits[rows, target])).sum()
    if smoothing:
        loss = loss + smoothing * log_sum.sum() - each * logits.sum()
        slope -= each
    slope[rows, target] -= 1 - smoothing
    return loss, slope


def linear_cross_entropy(
    outputs: Float[Tensor, "batch target size"],
    layer: nn.Linear,
    target: Int[Tensor, "batch target"],
    ignore: int,
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Σ -log p(target) over all positions but the ignored ones, for which nothing at all is computed."""
    wanted = target != ignore
    inputs: Tensor = outputs[wanted]
    weight: Tensor = layer.weight
    bias: Tensor = layer.bias
    if torch.is_autocast_enabled(outputs.device.type):
        kind = torch.get_autocast_dtype(outputs.device.type)
        inputs, weight, bias = inputs.to(kind), weight.to(kind), bias.to(kind)
    learn = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (inputs, weight, bias))
    loss: Tensor = _LinearCrossEntropy.apply(inputs, weight, bias, target[wanted], label_smoothing, learn)  # type: ignore[no-untyped-call]
    return loss
