"""Queries, keys, values -> context. `plain` is the specification and the only place that masks; the others are its twins."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from regard.nn.attention.pairs import Dot, Network, Pair
from regard.nn.attention.scopes import KeyRange, gaussian, mask
from regard.nn.attention.selections import HardSample, Soft
from regard.nn.autograd import apply
from regard.nn.kernels.attention import additive as additive_kernels
from regard.nn.kernels.attention import flash as flash_kernels
from regard.nn.kernels.attention import short as short_kernels
from regard.nn.linear import Record, lowered
from regard.nn.outline import device_of

Weights = Float[Tensor, "batch heads target source"]
SOFT = Soft()
WIDEST = 256  # elements of a head that a GPU's libraries take
FEW_KEYS = 1024


class AttentionTask(NamedTuple):
    """One attention, all queries at once."""

    pair: Pair
    query: Float[Tensor, "batch heads target size"]
    keys: Float[Tensor, "batch heads source size"]
    values: Float[Tensor, "batch values source value"]  # of each head, or one for all heads
    visible: Bool[Tensor, "batch source"] | None
    key_range: KeyRange
    selection: Soft
    bias: Float[Tensor, "#batch heads target source"] | None = None  # added to the scores
    fused: short_kernels.Joint | None = None  # keys and values, and queries before them, where one product made them

    @property
    def heads_values(self) -> Float[Tensor, "batch heads source value"]:
        return self.values.expand(-1, self.query.shape[1], -1, -1)

    @property
    def scale(self) -> float:
        """Of dot products."""
        assert isinstance(self.pair, Dot)
        return self.pair.scale / self.selection.temperature

    @property
    def seen(self) -> Bool[Tensor, "batch source"]:
        if self.visible is not None:
            return self.visible
        return self.keys.new_ones(self.keys.shape[0], self.keys.shape[2], dtype=torch.bool)


class HeadOutputs(NamedTuple):
    """The context of each head and query, and the weights if they were asked for."""

    context: Float[Tensor, "batch heads target value"]
    weights: Weights | None = None
    choice: HardSample | None = None


def normalise(
    scores: Float[Tensor, "*rows source"], hidden: Bool[Tensor, "*#rows source"], selection: Soft = SOFT
) -> tuple[Float[Tensor, "*rows source"], HardSample | None]:
    """α_i = select(e_i) over the visible keys, 0 elsewhere; all 0 where nothing is visible."""
    lowest = torch.finfo(scores.dtype).min  # not -inf: a row with nothing visible stays finite
    weights, choice = selection(scores.masked_fill(hidden, lowest))
    return weights.masked_fill(hidden, 0.0), choice


def weigh(
    scores: Weights, hidden: Bool[Tensor, "batch #heads #target source"], key_range: KeyRange, selection: Soft
) -> tuple[Weights, HardSample | None]:
    """The weights of what is in reach, times the Gaussian of local-p where there is one."""
    weights, choice = normalise(scores, hidden, selection)
    near = gaussian(key_range, scores.shape[-1])
    return (weights if near is None else weights * near), choice


def mix(values: Float[Tensor, "batch source value"]) -> Callable[[Tensor], Float[Tensor, "batch target value"]]:
    """Σ_j α_ij v_j of these values as a function for one pass over a target: dV is one product over all steps."""
    values = values.to(lowered(values))
    if not (torch.is_grad_enabled() and values.requires_grad):
        return lambda weights: weights.to(values.dtype) @ values
    record = Record()
    tied: Tensor = apply(_TieValues, values, record)
    return lambda weights: apply(_MixValues, weights.to(values.dtype), tied, record)


class _TieValues(torch.autograd.Function):
    """The identity on V; backward runs after every use has: dV = Σ_i α_i ⊗ g_i."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, record: Record) -> Tensor:
        ctx.record = record
        ctx.set_materialize_grads(False)
        return values.view_as(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Any) -> tuple[Tensor | None, None]:
        if (both := ctx.record.joined(dim=1)) is None:
            return None, None
        weights, gradients = both
        return weights.transpose(1, 2) @ gradients, None


class _MixValues(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: Tensor, values: Tensor, record: Record) -> Tensor:
        ctx.save_for_backward(weights, values)
        ctx.record = record
        return weights @ values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,), (weights, values) = gradients, ctx.saved_tensors
        ctx.record.add(weights, gradient)
        return gradient @ values.transpose(1, 2), None, None


def bind_mix(
    values: Float[Tensor, "batch values source value"], heads: int
) -> Callable[[Weights], Float[Tensor, "batch heads target value"]]:
    """`mix` for all heads: those that share their values ask as so many queries more."""
    own = values.shape[1] == heads
    read = mix(values.flatten(0, 1))

    def use(weights: Weights) -> Float[Tensor, "batch heads target value"]:
        folded = weights.flatten(0, 1) if own else weights.flatten(1, 2)
        return read(folded).view(*weights.shape[:3], -1)

    return use


def plain(task: AttentionTask) -> HeadOutputs:
    """c_i = Σ_j α_ij v_j"""
    scores = task.pair.bind(task.keys)(task.query)
    scores = scores if task.bias is None else scores + task.bias
    weights, choice = weigh(scores, ~mask(task.key_range, task.seen), task.key_range, task.selection)
    return HeadOutputs(bind_mix(task.values, task.query.shape[1])(weights), weights, choice)


def sides(task: AttentionTask) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one dtype: autocast's, or that of the queries."""
    kind = lowered(task.query)
    return task.query.to(kind), task.keys.to(kind), task.heads_values.to(kind)


def library(task: AttentionTask) -> HeadOutputs:
    """PyTorch's own kernels. They are given something to see in every row, and what they say of rows that see nothing is
    taken away. On a CPU their backward pass takes several times as long in bfloat16, so there it is float32."""
    if task.query.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        exact = task._replace(query=task.query.float(), keys=task.keys.float(), values=task.values.float())
        with torch.autocast("cpu", enabled=False):
            return library(exact)
    scale, (query, keys, values) = task.scale, sides(task)
    if task.visible is None and task.key_range == KeyRange() and task.bias is None:
        return HeadOutputs(functional.scaled_dot_product_attention(query, keys, values, scale=scale))
    counts = mask(task.key_range, task.seen)
    blind = ~counts.any(dim=-1, keepdim=True)
    shown = counts | blind
    if task.bias is not None:
        bias = task.bias.to(query.dtype) / task.selection.temperature
        shown = bias.masked_fill(~shown, torch.finfo(query.dtype).min)
    context = functional.scaled_dot_product_attention(query, keys, values, attn_mask=shown, scale=scale)
    nobody = blind.device.type == "cpu" and not blind.any()  # a GPU would have to wait for the answer
    return HeadOutputs(context if nobody else context.masked_fill(blind, 0.0))


def flash(task: AttentionTask) -> HeadOutputs:
    """Our kernels for what libraries do not have: ranges, Gaussians and wide heads, without a mask in memory."""
    first, last, centre, deviation = task.key_range
    found = flash_kernels.flash_attention(
        *sides(task), scale=task.scale, visible=task.visible, first=first, last=last, centre=centre,
        deviation=deviation,
    )  # fmt: skip
    return HeadOutputs(found.context)


def hard(task: AttentionTask) -> HeadOutputs:
    """The key of the highest score, without a [target, source] tensor."""
    first, last, *_ = task.key_range
    return HeadOutputs(flash_kernels.hard_attention(*sides(task), visible=task.visible, first=first, last=last).context)


def fused_network(task: AttentionTask) -> HeadOutputs:
    """Our kernels for v · tanh(q + k), which no library has."""
    assert isinstance(task.pair, Network)
    first, last, *_ = task.key_range
    query, keys, values = sides(task)
    score_vector = task.pair.score_vector / task.selection.temperature
    return HeadOutputs(additive_kernels.additive_attention(query, keys, score_vector, values, task.visible, first, last)[0])


def short(task: AttentionTask) -> HeadOutputs:
    """Our kernel for sentences: all keys in one tile, nothing kept but queries, keys and values."""
    scale, last = task.scale, task.key_range.last
    if task.fused is not None:
        query = sides(task)[0] if task.fused.shape[2] == 2 else None  # where it holds no queries
        found = short_kernels.short_joint_attention(task.fused, query, scale=scale, visible=task.visible, last=last)
        return HeadOutputs(found.transpose(1, 2))
    return HeadOutputs(short_kernels.short_attention(*sides(task), scale=scale, visible=task.visible, last=last, causal=False))


def attend(task: AttentionTask, return_weights: bool = False, path: str | None = None) -> HeadOutputs:
    """All queries by the fastest path that can. Weights are made by the plain path only."""
    return PATHS[path or ("plain" if return_weights else fastest(task))](task)


def fastest(task: AttentionTask) -> str:
    if torch.compiler.is_exporting():  # other paths look at values, which a graph has not
        return "plain"
    order = FASTEST.get(device_of(task.query), ())
    return next((name for name in order if APPLIES[name](task) and WORTH.get(name, APPLIES[name])(task)), "plain")


def soft_dot(task: AttentionTask) -> bool:
    return isinstance(task.pair, Dot) and type(task.selection) is Soft


def without_bias(task: AttentionTask) -> bool:
    return task.bias is None and soft_dot(task)


def short_applies(task: AttentionTask) -> bool:
    plain_range = task.key_range.first is None and task.key_range.centre is None
    return without_bias(task) and plain_range and short_kernels.applies(task.query, task.keys, task.values)


def library_applies(task: AttentionTask) -> bool:
    return soft_dot(task) and task.key_range.centre is None


def wide(task: AttentionTask) -> bool:
    return max(task.query.shape[-1], task.values.shape[-1]) > WIDEST


def faster_than_library(task: AttentionTask) -> bool:
    """Nothing beats a GPU's libraries where there are neither bounds nor padding nor wide heads. Wide heads over few keys are
    fastest as plain products, whose weights are then small beside the queries (benchmarks/attention_flash.py)."""
    if wide(task):
        return task.keys.shape[2] > FEW_KEYS
    return task.visible is not None or task.key_range != KeyRange()


def library_is_worth_it(task: AttentionTask) -> bool:
    """A GPU's only library for wide heads takes five times as long as plain products backward."""
    return task.query.device.type == "cpu" or not wide(task)


def flash_applies(task: AttentionTask) -> bool:
    return without_bias(task) and flash_kernels.applies(task.query, task.values)


def hard_applies(task: AttentionTask) -> bool:
    """In evaluation mode; training draws keys, and needs their log-probabilities."""
    best = task.selection.hard and not task.selection.training and task.key_range.centre is None and task.bias is None
    return best and isinstance(task.pair, Dot) and flash_kernels.applies(task.query, task.values)


def network_applies(task: AttentionTask) -> bool:
    tanh = isinstance(task.pair, Network) and task.pair.activation == "tanh"
    usual = type(task.selection) is Soft and task.key_range.centre is None and task.bias is None
    return tanh and usual and additive_kernels.applies(task.query, task.keys, task.values)


PATHS: dict[str, Callable[[AttentionTask], HeadOutputs]] = {
    "plain": plain,
    "library": library,
    "short": short,
    "flash": flash,
    "hard": hard,
    "network": fused_network,
}
APPLIES: dict[str, Callable[[AttentionTask], bool]] = {
    "plain": lambda task: True,
    "library": library_applies,
    "short": short_applies,
    "flash": flash_applies,
    "hard": hard_applies,
    "network": network_applies,
}
FASTEST = {
    "cpu": ("library",),
    "cuda": ("network", "hard", "short", "flash", "library"),
}  # no library has the first two; a mask would fill memory
WORTH: dict[str, Callable[[AttentionTask], bool]] = {"flash": faster_than_library, "library": library_is_worth_it}
