"""Queries, keys, values -> context. `plain` is the specification and the only place that masks; the others are its twins."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from regard.nn.attention.choice import Choice
from regard.nn.attention.pairs import Dot, Network, Pair
from regard.nn.attention.scopes import Reach, gaussian, mask
from regard.nn.attention.selections import Soft
from regard.nn.kernels.attention import additive as additive_kernels
from regard.nn.kernels.attention import flash as flash_kernels
from regard.nn.kernels.attention import short as short_kernels
from regard.nn.linear import Record, lowered
from regard.nn.outline import device_of

Weights = Float[Tensor, "batch heads target source"]
SOFT = Soft()
WIDEST = 256  # numbers of a head that a GPU's libraries take
FEW_KEYS = 1024


class Task(NamedTuple):
    """One attention, all queries at once."""

    pair: Pair
    query: Float[Tensor, "batch heads target size"]
    keys: Float[Tensor, "batch heads source size"]
    values: Float[Tensor, "batch values source value"]  # of each head, or one for all heads
    visible: Bool[Tensor, "batch source"] | None
    reach: Reach
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


class Looks(NamedTuple):
    """What all queries read, and where they looked if that was asked for."""

    context: Float[Tensor, "batch heads target value"]
    weights: Weights | None = None
    choice: Choice | None = None


def normalise(
    scores: Float[Tensor, "*rows source"], hidden: Bool[Tensor, "*#rows source"], selection: Soft = SOFT
) -> tuple[Float[Tensor, "*rows source"], Choice | None]:
    """α_i = select(e_i) over the visible keys, 0 elsewhere; all 0 where nothing is visible."""
    lowest = torch.finfo(scores.dtype).min  # not -inf: a row with nothing visible stays finite
    weights, choice = selection(scores.masked_fill(hidden, lowest))
    return weights.masked_fill(hidden, 0.0), choice


def weigh(
    scores: Weights, hidden: Bool[Tensor, "batch #heads #target source"], reach: Reach, selection: Soft
) -> tuple[Weights, Choice | None]:
    """The weights of what is in reach, times the Gaussian of local-p where there is one."""
    weights, choice = normalise(scores, hidden, selection)
    near = gaussian(reach, scores.shape[-1])
    return (weights if near is None else weights * near), choice


def mix(values: Float[Tensor, "batch source value"]) -> Callable[[Tensor], Float[Tensor, "batch target value"]]:
    """Σ_j α_ij v_j of these values as a function for one pass over a target: dV is one product over all steps."""
    values = values.to(lowered(values))
    if not (torch.is_grad_enabled() and values.requires_grad):
        return lambda weights: weights.to(values.dtype) @ values
    record = Record()
    tied: Tensor = _Tie.apply(values, record)  # type: ignore[no-untyped-call]
    return lambda weights: _Use.apply(weights.to(values.dtype), tied, record)  # type: ignore[no-untyped-call]


class _Tie(torch.autograd.Function):
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


class _Use(torch.autograd.Function):
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


def plain(task: Task) -> Looks:
    """c_i = Σ_j α_ij v_j"""
    scores = task.pair.bind(task.keys)(task.query)
    scores = scores if task.bias is None else scores + task.bias
    weights, choice = weigh(scores, ~mask(task.reach, task.seen), task.reach, task.selection)
    return Looks(bind_mix(task.values, task.query.shape[1])(weights), weights, choice)


def sides(task: Task) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of one kind of number: autocast's, or that of the queries."""
    kind = lowered(task.query)
    return task.query.to(kind), task.keys.to(kind), task.heads_values.to(kind)


def library(task: Task) -> Looks:
    """PyTorch's own kernels. They are given something to see in every row, and what they say of rows that see nothing is
    taken away. A CPU's take several times as long back in bfloat16, so there it is float32."""
    if task.query.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
        exact = task._replace(query=task.query.float(), keys=task.keys.float(), values=task.values.float())
        with torch.autocast("cpu", enabled=False):
            return library(exact)
    scale, (query, keys, values) = task.scale, sides(task)
    if task.visible is None and task.reach == Reach() and task.bias is None:
        return Looks(functional.scaled_dot_product_attention(query, keys, values, scale=scale))
    counts = mask(task.reach, task.seen)
    blind = ~counts.any(dim=-1, keepdim=True)
    shown = counts | blind
    if task.bias is not None:
        bias = task.bias.to(query.dtype) / task.selection.temperature
        shown = bias.masked_fill(~shown, torch.finfo(query.dtype).min)
    context = functional.scaled_dot_product_attention(query, keys, values, attn_mask=shown, scale=scale)
    nobody = blind.device.type == "cpu" and not blind.any()  # a GPU would have to wait for the answer
    return Looks(context if nobody else context.masked_fill(blind, 0.0))


def flash(task: Task) -> Looks:
    """Our kernels for what libraries do not have: ranges, Gaussians and wide heads, without a mask in memory."""
    first, last, centre, deviation = task.reach
    found = flash_kernels.flash_attention(
        *sides(task), scale=task.scale, visible=task.visible, first=first, last=last, centre=centre,
        deviation=deviation,
    )  # fmt: skip
    return Looks(found.context)


def hard(task: Task) -> Looks:
    """The best key, found on the way through."""
    first, last, *_ = task.reach
    return Looks(flash_kernels.hard_attention(*sides(task), visible=task.visible, first=first, last=last).context)


def fused_network(task: Task) -> Looks:
    """Our kernels for v · tanh(q + k), which no library has."""
    assert isinstance(task.pair, Network)
    first, last, *_ = task.reach
    query, keys, values = sides(task)
    energy = task.pair.energy / task.selection.temperature
    return Looks(additive_kernels.additive_attention(query, keys, energy, values, task.visible, first, last)[0])


def short(task: Task) -> Looks:
    """Our kernel for sentences: all keys in one tile, nothing kept but queries, keys and values."""
    scale, last = task.scale, task.reach.last
    if task.fused is not None:
        query = sides(task)[0] if task.fused.shape[2] == 2 else None  # where it holds no queries
        found = short_kernels.short_joint_attention(task.fused, query, scale=scale, visible=task.visible, last=last)
        return Looks(found.transpose(1, 2))
    return Looks(short_kernels.short_attention(*sides(task), scale=scale, visible=task.visible, last=last, causal=False))


def attend(task: Task, look: bool = False, path: str | None = None) -> Looks:
    """All queries by the fastest path that can. `look` asks for the weights, which only the plain path makes."""
    return PATHS[path or ("plain" if look else fastest(task))](task)


def fastest(task: Task) -> str:
    order = FASTEST.get(device_of(task.query), ())
    return next((name for name in order if APPLIES[name](task) and WORTH.get(name, APPLIES[name])(task)), "plain")


def soft_dot(task: Task) -> bool:
    return isinstance(task.pair, Dot) and type(task.selection) is Soft


def without_bias(task: Task) -> bool:
    return task.bias is None and soft_dot(task)


def short_applies(task: Task) -> bool:
    plain_reach = task.reach.first is None and task.reach.centre is None
    return without_bias(task) and plain_reach and short_kernels.applies(task.query, task.keys, task.values)


def library_applies(task: Task) -> bool:
    return soft_dot(task) and task.reach.centre is None


def wide(task: Task) -> bool:
    return max(task.query.shape[-1], task.values.shape[-1]) > WIDEST


def faster_than_library(task: Task) -> bool:
    """Nothing beats a GPU's libraries where there are neither bounds nor padding nor wide heads. Wide heads over few keys are
    fastest as plain products, whose weights are then small beside the queries (benchmarks/attention_flash.py)."""
    if wide(task):
        return task.keys.shape[2] > FEW_KEYS
    return task.visible is not None or task.reach != Reach()


def library_is_worth_it(task: Task) -> bool:
    """A GPU's only library for wide heads takes five times as long as plain products on the way back."""
    return task.query.device.type == "cpu" or not wide(task)


def flash_applies(task: Task) -> bool:
    return without_bias(task) and flash_kernels.applies(task.query, task.values)


def hard_applies(task: Task) -> bool:
    """In use; training draws, and wants to know more of it."""
    best = task.selection.hard and not task.selection.training and task.reach.centre is None and task.bias is None
    return best and isinstance(task.pair, Dot) and flash_kernels.applies(task.query, task.values)


def network_applies(task: Task) -> bool:
    tanh = isinstance(task.pair, Network) and task.pair.activation == "tanh"
    usual = type(task.selection) is Soft and task.reach.centre is None and task.bias is None
    return tanh and usual and additive_kernels.applies(task.query, task.keys, task.values)


PATHS: dict[str, Callable[[Task], Looks]] = {
    "plain": plain,
    "library": library,
    "short": short,
    "flash": flash,
    "hard": hard,
    "network": fused_network,
}
APPLIES: dict[str, Callable[[Task], bool]] = {
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
WORTH: dict[str, Callable[[Task], bool]] = {"flash": faster_than_library, "library": library_is_worth_it}
