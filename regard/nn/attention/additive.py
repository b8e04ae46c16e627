"""v · φ(q + k) for all pairs; what is kept for backward never has [target, source, size] elements.

For tanh on a CPU:  tanh(q + k) = 1 - 2 r  with  r = 1 / (1 + e^{2q} e^{2k}):  the exponentials are taken once per query and
once per key, and what is left for each pair is a product and a reciprocal. Queries are taken one at a time; backward computes
r again. Everything else is the plain formula on some queries at a time, computed again backward.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from regard.nn.autograd import apply

Queries = Float[Tensor, "batch heads target size"]
Keys = Float[Tensor, "batch heads source size"]
Scores = Float[Tensor, "batch heads target source"]
LARGEST = 20.0  # of |k|: e^{2k} is neither 0 nor ∞, so r is right for any q; beyond it the plain formula is taken
CHUNK = {"cpu": 1 << 20, "cuda": 1 << 27}  # elements of the plain formula at a time
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "identity": lambda inputs: inputs,
}


def additive(
    query: Queries,
    keys: Keys,
    score_vector: Float[Tensor, "heads size"],
    activation: str = "tanh",
    seen: Float[Tensor, "batch heads target source size"] | None = None,
) -> Scores:
    """The specification: e_ij = v · φ(q_i + k_j)"""
    both = query[:, :, :, None] + keys[:, :, None]
    both = both if seen is None else both + seen
    return torch.einsum("bhtsd,hd->bhts", ACTIVATIONS[activation](both), score_vector)


def in_chunks(query: Queries, keys: Keys, score_vector: Float[Tensor, "heads size"], activation: str) -> Scores:
    """The same, some queries at a time, computed again backward."""
    rows = max(1, CHUNK.get(keys.device.type, 1 << 20) // max(keys.numel(), 1))
    parts = [
        checkpoint(additive, part, keys, score_vector, activation, use_reentrant=False, preserve_rng_state=False)
        for part in torch.split(query, rows, dim=2)
    ]
    return torch.cat(parts, dim=2)


class KeySums:
    """What the uses of one set of keys add up while going backward."""

    def __init__(self) -> None:
        self.keys: Tensor | None = None  # Σ_i g_ij r_ij (1 - r_ij), to be multiplied by 4 v
        self.score_vector: Tensor | float = 0.0  # Σ_ij g_ij (1 - 2 r_ij)
        self.task = -1  # the pass backward they belong to

    def of_this_pass(self, like: Tensor) -> Tensor:
        if self.keys is None or self.task != torch._C._current_graph_task_id():
            self.keys, self.score_vector, self.task = torch.zeros_like(like), 0.0, torch._C._current_graph_task_id()
        return self.keys


class _TieKeys(torch.autograd.Function):
    """keys, v -> e^{2 keys}, v. Backward runs after every use has."""

    @staticmethod
    def forward(ctx: Any, keys: Tensor, score_vector: Tensor, sums: KeySums) -> tuple[Tensor, Tensor]:
        ctx.sums = sums
        ctx.save_for_backward(score_vector)
        ctx.set_materialize_grads(False)
        return exponential(keys), score_vector.view_as(score_vector)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *_: Any) -> tuple[Tensor | None, Tensor | None, None]:
        (score_vector,), sums = ctx.saved_tensors, ctx.sums
        if sums.keys is None or sums.task != torch._C._current_graph_task_id():
            return None, None, None
        keys, sums.keys = sums.keys, None
        return keys * (4 * score_vector[:, None]), sums.score_vector, None


class _ScoreKeys(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, score_vector: Tensor, sums: KeySums) -> Tensor:
        raised = exponential(query)
        ctx.save_for_backward(raised, keys, score_vector)
        ctx.sums = sums
        return bind_raised(keys, score_vector)(raised)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None, None]:
        raised, keys, score_vector = ctx.saved_tensors
        (gradient,), sums = outer, ctx.sums
        into = sums.of_this_pass(keys)
        one, queries = score_vector.new_ones(score_vector.shape[1]), []
        for row, grad in zip(raised.unbind(2), gradient.unbind(2), strict=True):
            part = ratio(row, keys, one)
            total = grad.sum(dim=(0, 2))[:, None] - 2 * over_pairs(grad, part)
            sums.score_vector = sums.score_vector + total
            part = torch.addcmul(part, part, part, value=-1)  # r (1 - r) = tanh' / 4
            queries.append(over_keys(grad, part))
            into.addcmul_(part, grad[..., None])
        return torch.stack(queries, dim=2) * (4 * score_vector[:, None]), None, None, None


Ratios = Float[Tensor, "batch heads source size"]
Grads = Float[Tensor, "batch heads source"]


def weigh(part: Ratios, score_vector: Float[Tensor, "heads size"]) -> Grads:
    """v · r; one head takes the faster product of a matrix and a vector."""
    return part @ score_vector[0] if len(score_vector) == 1 else (part @ score_vector[..., None]).squeeze(-1)


def over_keys(grad: Grads, part: Ratios) -> Float[Tensor, "batch heads size"]:
    """Σ_j g_j r_j"""
    return torch.bmm(grad.flatten(0, 1)[:, None], part.flatten(0, 1)).view(*part.shape[:2], -1)


def over_pairs(grad: Grads, part: Ratios) -> Float[Tensor, "heads size"]:
    """Σ g_j r_j over the batch too."""
    if grad.shape[1] == 1:
        return (grad.flatten() @ part.flatten(0, 2))[None]
    return over_keys(grad, part).sum(dim=0)


def exponential(inputs: Tensor) -> Tensor:
    return torch.exp(2 * inputs)


def ratio(query: Float[Tensor, "batch heads size"], keys: Keys, one: Float[Tensor, "size"]) -> Ratios:
    """r = 1 / (1 + e^{2q} e^{2k}) of one query and all keys."""
    return torch.addcmul(one, query[:, :, None], keys).reciprocal_()


def bind_raised(keys: Keys, score_vector: Float[Tensor, "heads size"]) -> Callable[[Queries], Scores]:
    """Σ v - 2 v · r of e^{2q}, for these e^{2k}."""
    one, whole = score_vector.new_ones(score_vector.shape[1]), score_vector.sum(dim=1)[:, None]

    def score(queries: Queries) -> Scores:
        parts = [whole - 2 * weigh(ratio(row, keys, one), score_vector) for row in queries.unbind(2)]
        return torch.stack(parts, dim=2)

    return score


def bind_additive(
    keys: Keys, score_vector: Float[Tensor, "heads size"], activation: str = "tanh"
) -> Callable[[Queries], Scores]:
    """`additive` of these keys as a function for one pass over a target."""
    if keys.device.type != "cpu" or activation != "tanh" or too_large(keys):  # a GPU has its own kernels
        return lambda query: in_chunks(query, keys, score_vector, activation)
    if not torch.is_grad_enabled():
        without = bind_raised(exponential(keys.contiguous()), score_vector)
        return lambda query: without(exponential(query)) if query.shape[2] else in_chunks(query, keys, score_vector, activation)
    sums = KeySums()
    raised, tied = apply(_TieKeys, keys.contiguous(), score_vector, sums)

    def score(query: Queries) -> Scores:
        if query.shape[2] == 0:
            return in_chunks(query, keys, score_vector, activation)
        return apply(_ScoreKeys, query, raised, tied, sums)

    return score


def too_large(inputs: Tensor) -> bool:
    return torch.compiler.is_exporting() or (inputs.numel() > 0 and bool(inputs.detach().abs().max() > LARGEST))
