"""Cross-entropy of a linear output layer, in chunks of rows: the logits of all positions never exist together."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn.autograd import apply
from regard.nn.kernels.layers import entropy
from regard.nn.linear import at_least_float32, lowered, matmul

CHUNK = {"cpu": 1 << 22, "cuda": 1 << 28}  # logits at a time: what stays in a CPU's cache; what fills a GPU
TILE = 64  # rows: a CPU's products take whole tiles of them faster


class _LinearCrossEntropy(torch.autograd.Function):
    """Loss and gradients of a chunk are taken while its logits are there; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        ignore: int,
        smoothing: float,
        learn: bool,
    ) -> Tensor:
        total = torch.zeros((), dtype=torch.float32, device=inputs.device)
        sides = [inputs, weight] if bias is None else [inputs, weight, bias]
        sums = torch.float32 if inputs.dtype == torch.bfloat16 else None  # over chunks: kept in float32 at the least
        gradients = [torch.zeros_like(side, dtype=None if side is inputs else sums) for side in sides] if learn else []
        for part in chunks(inputs, weight):
            logits = matmul(inputs[part], weight, bias)
            if entropy.applies(logits):
                loss, grad = entropy.entropy(logits, target[part], ignore, smoothing, learn)
            else:
                loss, grad = chunk_loss(logits.float(), target[part], smoothing)
            total += loss
            if learn:
                grad = grad.to(inputs.dtype)
                gradients[0][part] = matmul(grad, weight.T)
                add_product(gradients[1], grad.T, inputs[part])
                if bias is not None:
                    gradients[2] += grad.sum(dim=0)
        ctx.save_for_backward(*gradients)
        ctx.kinds = [side.dtype for side in sides]
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (scale,) = outer
        into = [torch.empty_like(gradient, dtype=kind) for gradient, kind in zip(ctx.saved_tensors, ctx.kinds, strict=True)]
        scaled = [torch.mul(gradient, scale, out=out) for gradient, out in zip(ctx.saved_tensors, into, strict=True)]
        return *scaled, *(None,) * (7 - len(scaled))


def add_product(total: Float[Tensor, "a c"], left: Float[Tensor, "a b"], right: Float[Tensor, "b c"]) -> None:
    """total += left right, in place; a GPU's products of 16 bits can be added to float32 as they come."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    elif left.is_cuda:
        torch.addmm(total, left, right, out_dtype=total.dtype, out=total)
    else:
        total += left @ right


def chunk_loss(
    logits: Float[Tensor, "rows vocabulary"], target: Int[Tensor, "rows"], smoothing: float
) -> tuple[Float[Tensor, ""], Float[Tensor, "rows vocabulary"]]:
    """-Σ q log p, with q = (1 - ε) [the truth] + ε / V, and its gradient p - q.

    log Σ e^l comes from the likeliest word, max l - log p: its probability is at least 1 / V and so never lost. The gradient
    takes the place of the logits, which a cache then holds.
    """
    rows, each = torch.arange(len(target), device=target.device), smoothing / logits.shape[1]
    best, own, total = logits.amax(dim=1), logits[rows, target], logits.sum() if smoothing else None
    grad = torch.softmax(logits, dim=1, out=logits)
    log_sum = best - grad.amax(dim=1).log()
    loss = ((1 - smoothing) * (log_sum - own)).sum()
    if total is not None:
        loss = loss + smoothing * log_sum.sum() - each * total
        grad -= each
    grad[rows, target] -= 1 - smoothing
    return loss, grad


def linear_cross_entropy(
    outputs: Float[Tensor, "batch target size"],
    layer: nn.Linear,
    target: Int[Tensor, "batch target"],
    ignore: int,
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Σ -log p(target) over all positions but the ignored ones. A CPU computes nothing for these; a GPU would have to tell
    their number first, and everything would wait for it, so its kernel lets them count 0."""
    wanted = ... if entropy.applies(outputs) else target != ignore
    inputs, weight, bias = factors(outputs[wanted].flatten(0, -2), layer)
    learn = torch.is_grad_enabled() and any(side is not None and side.requires_grad for side in (inputs, weight, bias))
    loss: Tensor = apply(_LinearCrossEntropy, inputs, weight, bias, target[wanted].flatten(), ignore, label_smoothing, learn)
    return loss


def factors(inputs: Float[Tensor, "rows size"], layer: nn.Linear) -> tuple[Tensor, Tensor, Tensor | None]:
    """What the layer multiplies and adds, in the type that autocast asks for."""
    bias = None if layer.bias is None else layer.bias.to(lowered(layer.bias))
    return inputs.to(lowered(inputs)), layer.weight.to(lowered(layer.weight)), bias


class _LinearLogSums(torch.autograd.Function):
    """Two values per row are kept of its logits; backward computes them again."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> tuple[Tensor, Tensor]:
        log_sums = at_least_float32(inputs.new_empty(len(inputs)))
        own = torch.empty_like(log_sums)
        for part in chunks(inputs, weight):
            logits = at_least_float32(matmul(inputs[part], weight, bias))
            log_sums[part] = logits.logsumexp(dim=1)
            own[part] = logits.gather(1, target[part, None]).squeeze(1)
        ctx.save_for_backward(inputs, weight, bias, target, log_sums)
        return log_sums, own

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        """Of log Σ e^l the gradient is p, of l itself 1 at the target."""
        inputs, weight, bias, target, log_sums = ctx.saved_tensors
        grads = at_least_float32(torch.zeros_like(weight)), at_least_float32(weight.new_zeros(len(weight)))
        gradients = torch.zeros_like(inputs), *grads
        for part in chunks(inputs, weight):
            logits = at_least_float32(matmul(inputs[part], weight, bias))
            grad = (logits - log_sums[part, None]).exp() * outer[0][part, None]
            grad[torch.arange(len(grad), device=grad.device), target[part]] += outer[1][part]
            grad = grad.to(inputs.dtype)
            gradients[0][part] = matmul(grad, weight.T)
            add_product(gradients[1], grad.T, inputs[part])
            gradients[2].add_(grad.sum(dim=0))
        return gradients[0], gradients[1].to(weight.dtype), None if bias is None else gradients[2].to(bias.dtype), None


def chunks(inputs: Float[Tensor, "rows size"], weight: Float[Tensor, "vocabulary size"]) -> Iterator[slice]:
    """Rows whose logits may exist together; as many whole tiles of a CPU's product as they make."""
    rows = max(1, CHUNK.get(inputs.device.type, 1 << 21) // len(weight))
    rows -= rows % TILE if rows > TILE and not inputs.is_cuda else 0
    return (slice(begin, begin + rows) for begin in range(0, len(inputs), rows))


def linear_log_sums(
    inputs: Float[Tensor, "rows size"], layer: nn.Linear, target: Int[Tensor, "rows"]
) -> tuple[Float[Tensor, "rows"], Float[Tensor, "rows"]]:
    """log Σ_w e^{l_w} of each row and its l_target, that of word 0 where the layer has no such word."""
    known = target.masked_fill(target >= layer.out_features, 0)
    log_sums, own = apply(_LinearLogSums, *factors(inputs, layer), known)
    return log_sums, own


def mean_logits(inputs: Float[Tensor, "rows size"], layer: nn.Linear) -> Float[Tensor, "rows"]:
    """1/V Σ_w l_w = x · (mean row of W) + mean of b: no logits needed."""
    means = (at_least_float32(inputs) * at_least_float32(layer.weight).mean(dim=0)).sum(dim=1)
    return means if layer.bias is None else means + at_least_float32(layer.bias).mean()
