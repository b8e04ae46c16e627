"""Between the two products of a position-wise network: dropout(φ(states + bias)), one launch forward and one backward.

Dropped elements are drawn again backward (norm.py). ReLU keeps what it wrote, which the next product keeps anyway, and
nothing else: it is 0 wherever it was dropped or negative.
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
from regard.nn.kernels.layers.norm import added
from regard.nn.kernels.machine import DTYPES, here, in_rows, or_else, programs_for, tile_for
from regard.nn.kernels.random import Seed, draws, rounded, seed_of
from regard.nn.linear import lowered

KINDS = {"relu": 0, "gelu": 1, "swiglu": 2}  # as activation_tiles.py numbers them
COLUMNS, NUMBERS = 512, 16  # of a tile; that a thread holds of it
THERE = 32  # programs a processor: nothing is added up, so that they need not all run at once
BACK = {"relu": 6, "gelu": 6, "swiglu": 4}  # as many as registers let run at once


class ActivationRule(NamedTuple):
    """What is computed."""

    rate: float
    kind: str
    seed: Seed | None


def applies(states: Tensor) -> bool:
    """Whether this machine can."""
    return here(states) and states.dtype in DTYPES


def activate(
    states: Float[Tensor, "*rows inner"], bias: Float[Tensor, "inner"] | None, *, kind: str = "relu", rate: float = 0.0,
    seed: Seed | None = None,
) -> Float[Tensor, "*rows width"]:  # fmt: skip
    """dropout(φ(states + bias)); swiglu's states are twice as wide, swish(left half) * right half."""
    if not applies(states):
        return plain_activate(states, bias, kind=kind, rate=rate)
    rule = ActivationRule(rounded(rate), kind, seed_of(rate, seed, states))
    return apply(_Activate, states, bias, rule)


def plain_activate(
    states: Float[Tensor, "*rows inner"], bias: Float[Tensor, "inner"] | None, *, kind: str = "relu", rate: float = 0.0
) -> Float[Tensor, "*rows width"]:
    """The specification."""
    states = states if bias is None else (states + bias).to(states.dtype)
    if kind == "swiglu":
        opened, gate = states.chunk(2, dim=-1)
        states = functional.silu(opened) * gate
    else:
        states = functional.relu(states) if kind == "relu" else functional.gelu(states)
    return Dropout(rate)(states) if rate else states


def relu_product(
    states: Float[Tensor, "*rows size"], weight: Float[Tensor, "inner size"], bias: Float[Tensor, "inner"]
) -> Float[Tensor, "*rows inner"]:
    """max(0, W x + b): the library's product writes it so, and our kernel takes the backward pass."""
    kind = lowered(states)
    rows = states.flatten(0, -2).to(kind)
    found: Tensor = apply(_ReluProduct, rows, weight.to(kind), bias.to(kind))
    return found.view(*states.shape[:-1], len(weight))


class _ReluProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        out: Tensor = torch._addmm_activation(bias, rows, weight.T)
        ctx.save_for_backward(rows, weight, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, weight, out = ctx.saved_tensors
        into, sums = activated_back(out, None, gradients[0], True, ActivationRule(0.0, "relu", None))
        return into @ weight, into.T @ rows, sums.to(weight.dtype)


class _Activate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, bias: Tensor | None, rule: ActivationRule) -> Tensor:
        width = states.shape[-1] // (2 if rule.kind == "swiglu" else 1)
        out = torch.empty(*states.shape[:-1], width, dtype=states.dtype, device=states.device)
        activated(states, bias, out, rule)
        ctx.save_for_backward(*((out, None) if rule.kind == "relu" else (states, bias)))
        ctx.rule, ctx.bias_kind = rule, None if bias is None else bias.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None, None]:
        states, bias = ctx.saved_tensors
        into, sums = activated_back(states, bias, gradients[0], ctx.needs_input_grad[1], ctx.rule)
        return into, sums.to(ctx.bias_kind) if ctx.needs_input_grad[1] else None, None


def tiles(rows: int, width: int, most: int, like: Tensor) -> tuple[tuple[int, int], dict[str, int]]:
    """How many programs, and of what tile."""
    columns, tile = -(-width // COLUMNS), tile_for(min(width, COLUMNS), NUMBERS)
    return (programs_for(rows, tile, -(-most // columns), like), columns), tile


@singledispatch
def activated(states: Tensor, bias: Tensor | None, out: Tensor, rule: ActivationRule) -> None:
    from regard.nn.kernels.layers.activation_tiles import activate

    x, width = in_rows(states), out.shape[-1]
    seed, chances, drops = draws(rule.seed, rule.rate, x)
    grid, tile = tiles(len(x), width, THERE, x)
    activate[grid](
        x, *or_else(x, bias), seed, out, x.stride(0), *chances, len(x), WIDTH=width, BIASED=bias is not None,
        KIND=KINDS[rule.kind], **drops, **tile,
    )  # fmt: skip


def activated_back(
    states: Tensor, bias: Tensor | None, gradient: Tensor, learns: bool, rule: ActivationRule
) -> tuple[Tensor, Tensor]:
    """The gradients of the states and of the bias; with ReLU, `states` is what it wrote."""
    from regard.nn.kernels.layers.activation_tiles import activate_back

    x, g = in_rows(states), in_rows(gradient)
    seed, chances, drops = draws(rule.seed, rule.rate, x)
    grid, tile = tiles(len(x), g.shape[1], BACK[rule.kind], x)
    into = torch.empty(states.shape, dtype=states.dtype, device=states.device)
    sums = torch.empty(grid[0], x.shape[1], dtype=torch.float32, device=x.device)
    activate_back[grid](
        x, *or_else(x, bias), seed, g, into, sums, x.stride(0), g.stride(0), x.shape[1], *chances, len(x), WIDTH=g.shape[1],
        BIASED=bias is not None, LEARNS=learns, KIND=KINDS[rule.kind], **drops, **tile,
    )  # fmt: skip
    return into, added(sums) if learns else sums[0]
