"""What kernels and scans do with outlines: nothing is launched, products are counted, what backward needs is kept."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from regard.nn import dropout
from regard.nn.kernels.attention import additive, flash_launch, short
from regard.nn.kernels.attention.flash_launch import FlashRule, Saved
from regard.nn.kernels.layers import activation, grouped, norm, words
from regard.nn.outline import Outline
from regard.nn.recurrent import gated_scan


@gated_scan.advance.register(Outline)
def advance(pre: Tensor, engine: gated_scan.Engine, fixed: gated_scan.ScanPass, tracks: Sequence[Tensor]) -> None:
    """A scan multiplies every state but the last by U; all steps at once cost what they cost one by one."""
    for weight in fixed.weights.values():
        functional.linear(tracks[0][:, :-1].flatten(0, 1), weight)


@grouped.loop.register(Outline)
def one_product(rows: Tensor, weight: Tensor, bias: Tensor, groups: grouped.Groups) -> Tensor:
    """Each row meets the matrix of its own expert, whichever that is."""
    return functional.linear(rows, weight[0], bias[0])


@short.launch_forward.register(Outline)
def looked(query: Tensor, keys: Tensor, values: Tensor, *_: Any) -> None:
    """The products of an attention."""
    (query @ keys.mT) @ values


@flash_launch.launch_forward.register(Outline)
def looked_within(query: Tensor, keys: Tensor, values: Tensor, centre: Tensor | None, rule: FlashRule) -> tuple[Tensor, Saved]:
    """As many keys per query as its window has in the mean: what lies outside is not computed."""
    width = keys.shape[2]
    if rule.first is not None and rule.last is not None:
        seen = (rule.last.clamp(max=width - 1) - rule.first.clamp(min=0) + 1).clamp(min=0)
        width = round(float(seen.double().mean()))
    looked(query, keys[:, :, :width], values[:, :, :width])
    log_sum = query.new_empty(query.shape[:3], dtype=torch.float32)
    context = query.new_empty(*query.shape[:3], values.shape[3])
    return context, Saved(query, keys, values, centre, context, log_sum, None, None, None)


@additive.launch_forward.register(Outline)
def compared(
    query: Tensor, keys: Tensor, score_vector: Tensor, values: Tensor, *limits: Tensor | None
) -> tuple[Tensor, Tensor]:
    """v · tanh(q + k) multiplies as often as q · k does."""
    looked(query, keys, values)
    context = values.new_empty(*query.shape[:3], values.shape[3], dtype=torch.float32)
    return context, context.new_empty(context.shape[:3])


@norm.joined.register(Outline)
@activation.activated.register(Outline)
def nothing(*_: Any) -> None:
    """Room for the result is there already."""


@words.brought_in.register(Outline)
def entered(states: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(states)


@dropout.drop.register(Outline)
def drop(input: Tensor, rate: float) -> Tensor:
    """A GPU keeps a byte per element."""
    return torch.native_dropout(input, rate, True)[0] if rate > 0 else input
