"""Words enter a stack: looked up in a table, scaled, with their places added, and dropout.

The gradient of a table is a sum over the places of each word, always in the same order: sorted words, sums of equal ones within
blocks, then of those that cross from one block to others.
"""

from functools import singledispatch
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from regard.nn.autograd import apply
from regard.nn.dropout import Dropout
from regard.nn.kernels.layers.norm import applies
from regard.nn.kernels.machine import DTYPES, in_rows, interpreted, power_of_two, tile_for
from regard.nn.kernels.random import Seed, draws, rounded, seed_of

States = Float[Tensor, "batch time size"]
Table = Float[Tensor, "vocabulary size"]
Places = Float[Tensor, "#batch time size"]
NUMBERS = 16  # of a tile, that a thread holds
BLOCK, COLUMNS, AT_ONCE = 32, 128, 16  # sorted words and columns of a program; blocks that are joined at a time


def entered(states: States, places: Places | None, *, scale: float, rate: float = 0.0, seed: Seed | None = None) -> States:
    """dropout(scale · states + places). Places that learn are added the plain way."""
    if not applies(states) or (places is not None and places.requires_grad):
        return plain_entered(states, places, scale=scale, rate=rate)
    return apply(_Entered, states, places, scale, rounded(rate), seed_of(rate, seed, states))


def plain_entered(states: States, places: Places | None, *, scale: float, rate: float = 0.0) -> States:
    """The specification."""
    whole = states if scale == 1.0 else states * scale
    whole = whole if places is None else whole + places.to(states.dtype)
    return Dropout(rate)(whole) if rate else whole


class _Entered(torch.autograd.Function):
    """dropout(scale · g) is its gradient, with the same draw."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, places: Tensor | None, scale: float, rate: float, seed: Seed | None) -> Tensor:
        ctx.rule = scale, rate, seed
        return brought_in(states, places, scale, rate, seed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return brought_in(gradients[0], None, *ctx.rule), None, None, None, None


@singledispatch
def brought_in(states: Tensor, places: Tensor | None, scale: float, rate: float, seed: Seed | None) -> Tensor:
    from regard.nn.kernels.layers.words_tiles import enter

    x, size = in_rows(states).contiguous(), states.shape[-1]
    added = x if places is None else in_rows(places).contiguous()
    into, (number, chances, drops), tile = torch.empty_like(x), draws(seed, rate, x), tile_for(size, NUMBERS)
    enter[(-(-len(x) // tile["R"]),)](
        x, added, number, into, scale, *chances, len(x), len(added), SIZE=size, ADDS=places is not None, **drops, **tile
    )
    return into.view(states.shape)


def lookup(table: Table, words: Int[Tensor, "*any"]) -> Float[Tensor, "*any size"]:
    """The rows of a table."""
    if not applies(table) or not (torch.is_grad_enabled() and table.requires_grad):
        return functional.embedding(words, table)
    return apply(_Lookup, table, words)


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, words: Tensor) -> Tensor:
        ctx.save_for_backward(words)
        ctx.length, ctx.kind = len(table), table.dtype
        return functional.embedding(words, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (words,) = ctx.saved_tensors
        return summed(in_rows(gradients[0]).contiguous(), words.flatten(), ctx.length, ctx.kind), None


def summed(rows: Float[Tensor, "count size"], words: Int[Tensor, "count"], length: int, kind: torch.dtype) -> Table:
    """Σ of the rows of each word."""
    import triton.language as tl

    from regard.nn.kernels.layers.words_tiles import add_runs, join_runs

    size, blocks = rows.shape[1], -(-len(rows) // BLOCK)
    into = rows.new_zeros(length, size, dtype=kind)
    if not blocks:
        return into
    ordered, order = words.to(torch.int32).sort(stable=True)
    edges = torch.empty(blocks, 2, size, dtype=torch.float32, device=rows.device)
    columns = min(power_of_two(size), COLUMNS)
    programs, sizes = (blocks, -(-size // columns)), {"SIZE": size, "C": columns, "B": BLOCK}
    number = tl.float32 if interpreted() else getattr(tl, DTYPES[rows.dtype])
    add_runs[programs](rows, ordered, order, into, edges, len(rows), **sizes, KIND=number)
    join_runs[programs](ordered, into, edges, len(rows), **sizes, AT_ONCE=AT_ONCE)
    return into
