"""A sublayer's output is added to its input and normalised: one launch forward and one backward instead of a dozen.

total = residual + dropout(states + bias), normed = norm(total) · weight + offset. A dropped element is dropped again
backward by the same draw, which is a function of its place and of a seed: no mask is kept.
"""

from functools import singledispatch
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from regard.nn.autograd import apply
from regard.nn.dropout import Dropout
from regard.nn.kernels.machine import DTYPES, here, in_rows, or_else, programs_for, tile_for
from regard.nn.kernels.random import Seed, draws, rounded, seed_of

States = Float[Tensor, "*rows size"]
Vector = Float[Tensor, "size"]
CENTRED = {"layer": True, "rms": False}  # the norms, and whether they take the mean away
WIDEST = 4096
THERE, BACK = (16, 4), (32, 1)  # elements of a tile that a thread holds, and how many warps hold it at the least
LINES, LINE = 64, 16  # rows and columns of partial sums that a program adds up at a time
WARPS = 24, 8  # a processor, forward and backward: as many as its registers let run at once


class NormRule(NamedTuple):
    """What is computed."""

    rate: float
    centred: bool
    eps: float
    seed: Seed | None


def applies(states: Tensor) -> bool:
    """Whether this machine can, and rows fit into registers."""
    return here(states) and states.dtype in DTYPES and states.shape[-1] <= WIDEST


def add_norm(
    states: States, residual: States | None, bias: Vector | None, weight: Vector, offset: Vector | None, *, rate: float = 0.0,
    kind: str = "layer", eps: float = 1e-5, seed: Seed | None = None,
) -> tuple[States, States]:  # fmt: skip
    """(total, normed), both of the states' dtype. At rate 0 nothing is drawn; without a seed, one is drawn."""
    if not applies(states):
        return plain_add_norm(states, residual, bias, weight, offset, rate=rate, kind=kind, eps=eps)
    rule = NormRule(rounded(rate), CENTRED[kind], eps, seed_of(rate, seed, states))
    return apply(_AddNorm, states, residual, bias, weight, offset, rule)[:2]


def add_norm_for_two(
    states: States, residual: States | None, bias: Vector | None, weight: Vector, offset: Vector | None, *, rate: float = 0.0,
    kind: str = "layer", eps: float = 1e-5, seed: Seed | None = None,
) -> tuple[States, States]:  # fmt: skip
    """`normed` of add_norm twice, for two readers: the backward kernel adds their gradients, which takes no pass of its own."""
    if not applies(states):
        return (plain_add_norm(states, residual, bias, weight, offset, rate=rate, kind=kind, eps=eps)[1],) * 2
    rule = NormRule(rounded(rate), CENTRED[kind], eps, seed_of(rate, seed, states))
    return apply(_AddNorm, states, residual, bias, weight, offset, rule)[1:]


def plain_add_norm(
    states: States, residual: States | None, bias: Vector | None, weight: Vector, offset: Vector | None, *, rate: float = 0.0,
    kind: str = "layer", eps: float = 1e-5,
) -> tuple[States, States]:  # fmt: skip
    """The specification."""
    total = states if bias is None else states + bias
    total = Dropout(rate)(total) if rate else total
    total = (total if residual is None else residual + total).to(states.dtype)
    exact, size = torch.promote_types(states.dtype, weight.dtype), weight.shape
    if CENTRED[kind]:
        normed = functional.layer_norm(
            total.to(exact), size, weight.to(exact), None if offset is None else offset.to(exact), eps
        )
    else:
        normed = functional.rms_norm(total.to(exact), size, weight.to(exact), eps)
        normed = normed if offset is None else normed + offset
    return total, normed.to(states.dtype)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        residual: Tensor | None,
        bias: Tensor | None,
        weight: Tensor,
        offset: Tensor | None,
        rule: NormRule,
    ) -> tuple[Tensor, Tensor, Tensor]:
        total, normed = (torch.empty(states.shape, dtype=states.dtype, device=states.device) for _ in range(2))
        ctx.save_for_backward(total, weight)
        ctx.rule, ctx.kinds = rule, [None if part is None else part.dtype for part in (states, residual, bias, weight, offset)]
        ctx.set_materialize_grads(False)
        joined(states, residual, bias, weight, offset, total, normed, rule)
        return total, normed, normed.view_as(normed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if all(gradient is None for gradient in gradients):
            return (None,) * 6
        (total, weight), (by_total, one, other), (_, residual, bias, *_) = ctx.saved_tensors, gradients, ctx.kinds
        one, other = (other, None) if one is None else (one, other)
        found = joined_back(total, weight, by_total, one, other, residual is not None, bias is not None, ctx.rule)
        return *(None if kind is None else part.to(kind) for part, kind in zip(found, ctx.kinds, strict=True)), None


@singledispatch
def joined(
    states: Tensor, residual: Tensor | None, bias: Tensor | None, weight: Tensor, offset: Tensor | None, total: Tensor,
    normed: Tensor, rule: NormRule,
) -> None:  # fmt: skip
    from regard.nn.kernels.layers.norm_tiles import add_norm

    x, size = in_rows(states), states.shape[-1]
    other = x if residual is None else in_rows(residual)
    seed, chances, drops = draws(rule.seed, rule.rate, x)
    tile = tile_for(size, *THERE)
    add_norm[(programs_for(len(x), tile, WARPS[0] // tile["num_warps"], x),)](
        x, other, *or_else(x, bias), weight, *or_else(x, offset), seed, total, normed, x.stride(0), other.stride(0), *chances,
        rule.eps, len(x), SIZE=size, ADDS=residual is not None, BIASED=bias is not None, SHIFTS=offset is not None,
        CENTRED=rule.centred, **drops, **tile,
    )  # fmt: skip


def added(sums: Float[Tensor, "programs *any"]) -> Float[Tensor, "*any"]:
    """What all programs have added up, always in one order."""
    from regard.nn.kernels.layers.norm_tiles import add_lines

    out = torch.empty(sums.shape[1:], dtype=sums.dtype, device=sums.device)
    add_lines[(-(-out.numel() // LINE),)](sums, out, len(sums), WIDTH=out.numel(), R=LINES, C=LINE, num_warps=4)
    return out


def joined_back(
    total: Tensor, weight: Tensor, by_total: Tensor | None, by_normed: Tensor | None, again: Tensor | None, adds: bool,
    biased: bool, rule: NormRule,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of states, residual, bias, weight and offset; `again`: what the second reader of `normed` gives back."""
    from regard.nn.kernels.layers.norm_tiles import add_norm_back

    x, size = in_rows(total), total.shape[-1]
    passes, norms, more = (x if part is None else in_rows(part) for part in (by_total, by_normed, again))
    seed, chances, drops = draws(rule.seed, rule.rate, x)
    into, tile = torch.empty_like(total), tile_for(size, *BACK)
    other = torch.empty_like(total) if adds and rule.seed is not None else into
    programs = programs_for(len(x), tile, WARPS[1] // tile["num_warps"], x)
    sums = torch.empty(programs, 3, size, dtype=torch.float32, device=x.device)
    add_norm_back[(programs,)](
        x, weight, seed, norms, more, passes, into, other, sums, norms.stride(0), more.stride(0), passes.stride(0), *chances,
        rule.eps, len(x), SIZE=size, NORMS=by_normed is not None, AGAIN=again is not None, PASSES=by_total is not None,
        SPLITS=other is not into, BIASED=biased, CENTRED=rule.centred, **drops, **tile,
    )  # fmt: skip
    whole = added(sums)
    learned = whole[:2] if by_normed is not None else whole.new_zeros(2, size)
    return into, other, whole[2], learned[0], learned[1]
