"""v · tanh(q + k) for all pairs without a tanh and without a [target, source, size] tensor.

tanh(q + k) = 1 - 2 r  with  r = 1 / (1 + e^{2q} e^{2k}):  the exponentials are taken once a query and once a key, and what
is left for each pair is a product and a reciprocal. Queries are taken one at a time; backward computes r again.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

Scores = Float[Tensor, "batch target source"]
LARGEST = 20.0  # of |q| and |k|: e^{2·20} and its inverse are far inside float32; beyond it the plain formula is taken


def additive(
    query: Float[Tensor, "batch target size"], keys: Float[Tensor, "batch source size"], energy: Float[Tensor, "size"]
) -> Scores:
    """The specification: e_ij = v · tanh(q_i + k_j)"""
    return torch.tanh(query[:, :, None] + keys[:, None]) @ energy


class Sums:
    """What the uses of one set of keys add up while going backward."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None  # Σ_i g_ij r_ij (1 - r_ij), to be multiplied by 4 v
        self.energy: Tensor | float = 0.0  # Σ_ij g_ij (1 - 2 r_ij)
        self.task = -1  # the pass backward they belong to

    def of_this_pass(self, like: Tensor) -> Tensor:
        if self.keys is None or self.task != torch._C._current_graph_task_id():
            self.keys, self.energy, self.task = torch.zeros_like(like), 0.0, torch._C._current_graph_task_id()
        return self.keys


class _Tie(torch.autograd.Function):
    """keys, v -> e^{2 keys}, v. Backward runs after every use has."""

    @staticmethod
    def forward(ctx: Any, keys: Tensor, energy: Tensor, sums: Sums) -> tuple[Tensor, Tensor]:
        ctx.sums = sums
        ctx.save_for_backward(energy)
        ctx.set_materialize_grads(False)
        return exponential(keys), energy.view_as(energy)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Any) -> tuple[Tensor | None, Tensor | None, None]:
        (energy,), sums = ctx.saved_tensors, ctx.sums
        if sums.keys is None or sums.task != torch._C._current_graph_task_id():
            return None, None, None
        keys, sums.keys = sums.keys, None
        return keys * (4 * energy), sums.energy, None


class _Use(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, energy: Tensor, sums: Sums) -> Tensor:
        raised = exponential(query)
        ctx.save_for_backward(raised, keys, energy)
        ctx.sums = sums
        one, whole = torch.ones_like(energy), energy.sum()
        return torch.stack([whole - 2 * (ratio(row, keys, one) @ energy) for row in raised.unbind(1)], dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None, None]:
        raised, keys, energy = ctx.saved_tensors
        (gradient,), sums = outer, ctx.sums
        into = sums.of_this_pass(keys)
        one, queries = torch.ones_like(energy), []
        for row, slope in zip(raised.unbind(1), gradient.unbind(1), strict=True):
            part = ratio(row, keys, one)
            sums.energy = sums.energy + slope.sum() - 2 * (slope.flatten() @ part.flatten(0, 1))
            part = torch.addcmul(part, part, part, value=-1)  # r (1 - r) = tanh' / 4
            queries.append(torch.bmm(slope[:, None], part).squeeze(1))
            into.addcmul_(part, slope[..., None])
        return torch.stack(queries, dim=1) * (4 * energy), None, None, None


def exponential(inputs: Tensor) -> Tensor:
    return torch.exp(2 * inputs)


def ratio(query: Float[Tensor, "batch size"], keys: Float[Tensor, "batch source size"], one: Float[Tensor, "size"]) -> Tensor:
    """r = 1 / (1 + e^{2q} e^{2k}) of one query and all keys."""
    return torch.addcmul(one, query[:, None], keys).reciprocal_()


def bind_additive(
    keys: Float[Tensor, "batch source size"], energy: Float[Tensor, "size"]
) -> Callable[[Float[Tensor, "batch target size"]], Scores]:
    """`additive` of these keys as a function for one pass over a target."""
    if keys.device.type != "cpu" or too_large(keys):  # a GPU would need a launch for each query and each operation
        return lambda query: additive(query, keys, energy)
    sums = Sums()
    raised, tied = _Tie.apply(keys, energy, sums)  # type: ignore[no-untyped-call]

    def score(query: Float[Tensor, "batch target size"]) -> Scores:
        if query.shape[1] == 0 or too_large(query):
            return additive(query, keys, energy)
        return _Use.apply(query, raised, tied, sums)  # type: ignore[no-untyped-call, no-any-return]

    return score


def too_large(inputs: Tensor) -> bool:
    return inputs.numel() > 0 and bool(inputs.detach().abs().max() > LARGEST)
