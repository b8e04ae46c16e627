"""Products of rows that are sorted into groups, each group with a matrix of its own: y = W_g x + b_g.

`loop` specifies it, and reads the ends of the groups on the host; the others never do, so that a CUDA graph can hold them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, singledispatch
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.autograd import apply
from regard.nn.linear import lowered

Rows = Float[Tensor, "slots input"]
Weight = Float[Tensor, "groups output input"]
Bias = Float[Tensor, "groups output"]
Result = Float[Tensor, "slots output"]
ALIGNED = 8  # elements of bfloat16 that torch._grouped_mm loads at once: both sizes are multiples of it


@dataclass(frozen=True)
class Groups:
    """Where the slots of all rows go. Row r owns slots r · copies and the following; sorted slot s was slot order[s]. What
    lies beyond the last end belongs to no group."""

    order: Int[Tensor, "slots"]
    inverse: Int[Tensor, "slots"]
    owners: Int[Tensor, "slots"]  # the group of each sorted slot; as many as there are groups: none
    ends: Int[Tensor, "groups"]  # where each group ends, int32
    copies: int
    most: int  # no group has more slots than this

    @classmethod
    def sort(cls, owners: Int[Tensor, "rows copies"], number: int, most: int) -> "Groups":
        slots, order = owners.flatten().sort(stable=True)
        ends = torch.searchsorted(slots, torch.arange(number, device=slots.device), right=True, out_int32=True)
        return cls(order, order.argsort(), slots, ends, owners.shape[1], most)

    @cached_property
    def slices(self) -> list[slice]:
        """On the host: on a GPU this waits for it."""
        ends = self.ends.tolist()
        return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]

    def deal(self, rows: Float[Tensor, "rows size"]) -> Float[Tensor, "slots size"]:
        """Each row once for each of its slots, sorted."""
        dealt: Tensor = apply(_Move, rows, self.order, self.inverse, self.copies)
        return dealt

    def collect(self, results: Float[Tensor, "slots size"]) -> Float[Tensor, "rows copies size"]:
        """Back in the order of rows."""
        moved: Tensor = apply(_Move, results, self.inverse, self.order, 1)
        return moved.view(len(moved) // self.copies, self.copies, results.shape[1])


class _Move(torch.autograd.Function):
    """y_s = x_{order(s) / copies}. Its backward is a gather too: adding rows up where they came from would take atomics."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, order: Tensor, inverse: Tensor, copies: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.shape = (len(rows), copies, rows.shape[1])
        return rows.index_select(0, order // copies if copies > 1 else order)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (inverse,) = ctx.saved_tensors
        return gradients[0].index_select(0, inverse).view(ctx.shape).sum(dim=1), None, None, None


class _Loop(torch.autograd.Function):
    """One product a group, written where it belongs; slots of no group and matrices without rows get 0."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, groups: Groups) -> Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.groups = groups
        results = rows.new_empty(len(rows), weight.shape[1])
        for part, matrix, offset in zip(groups.slices, weight, bias, strict=True):
            torch.addmm(offset, rows[part], matrix.T, out=results[part])
        results[groups.slices[-1].stop :] = 0
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        rows, weight = ctx.saved_tensors
        grad = gradients[0]
        inward, matrices = torch.empty_like(rows), torch.empty_like(weight)
        for part, matrix, turned in zip(ctx.groups.slices, weight, matrices, strict=True):
            torch.mm(grad[part], matrix, out=inward[part])
            torch.mm(grad[part].T, rows[part], out=turned)
        inward[ctx.groups.slices[-1].stop :] = 0
        return inward, matrices, torch.stack([grad[part].sum(dim=0) for part in ctx.groups.slices]), None


class _Grouped(torch.autograd.Function):
    """All groups in one launch each way. What follows the last end would be left as memory was: the last group takes it."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, groups: Groups) -> Tensor:
        number = len(weight)
        ends = torch.cat([groups.ends[:-1], groups.ends.new_full((1,), len(rows))])
        ctx.save_for_backward(rows, weight, ends)
        results: Tensor = torch._grouped_mm(rows, weight.transpose(1, 2), offs=ends)
        return results.add_(bias.index_select(0, groups.owners.clamp(max=number - 1)))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        rows, weight, ends = ctx.saved_tensors
        grad = gradients[0].contiguous()
        matrices = torch._grouped_mm(grad.T, rows, offs=ends)
        ones = rows.new_ones(len(rows), ALIGNED)
        offsets = torch._grouped_mm(grad.T, ones, offs=ends)[..., 0]  # Σ of each group's gradients, without atomics
        return torch._grouped_mm(grad, weight, offs=ends), matrices, offsets, None


@singledispatch
def loop(rows: Rows, weight: Weight, bias: Bias, groups: Groups) -> Result:
    results: Tensor = apply(_Loop, rows, weight, bias, groups)
    return results


def grouped(rows: Rows, weight: Weight, bias: Bias, groups: Groups) -> Result:
    results: Tensor = apply(_Grouped, rows, weight, bias, groups)
    return results


def padded(rows: Rows, weight: Weight, bias: Bias, groups: Groups) -> Result:
    """Every group filled up to the most slots that any may have."""
    number, most = len(weight), groups.most
    begins = torch.cat([groups.ends.new_zeros(1), groups.ends]).long()
    places = torch.arange(len(rows), device=rows.device) - begins[groups.owners]
    slots = (groups.owners * most + places).masked_fill(groups.owners == number, number * most)
    filled = rows.new_zeros(number * most + 1, rows.shape[1]).index_copy(0, slots, rows)[:-1].view(number, most, -1)
    results = torch.baddbmm(bias[:, None], filled, weight.transpose(1, 2)).flatten(0, 1)
    return results.index_select(0, slots.clamp(max=number * most - 1))


def grouped_applies(rows: Tensor, weight: Tensor) -> bool:
    """Elsewhere torch._grouped_mm waits for the host; on Blackwell groups without rows get gradients (pytorch#172439)."""
    able = hasattr(torch, "_grouped_mm") and rows.dtype == torch.bfloat16 and rows.device.type == "cuda"
    aligned = weight.shape[1] % ALIGNED == weight.shape[2] % ALIGNED == 0 and len(rows) > 0
    return able and aligned and torch.cuda.get_device_capability(rows.device)[0] == 9


def fastest(rows: Tensor, weight: Tensor) -> str:
    if grouped_applies(rows, weight):
        return "grouped"
    recorded = rows.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
    return "padded" if recorded else "loop"


PATHS: dict[str, Callable[[Tensor, Tensor, Tensor, Groups], Tensor]] = {"loop": loop, "grouped": grouped, "padded": padded}


def products(rows: Rows, weight: Weight, bias: Bias, groups: Groups, path: str | None = None) -> Result:
    """W_g x + b_g for the slots of every group g, in autocast's type. Slots of no group come out as anything finite."""
    rows, weight, bias = (one.to(lowered(one)) for one in (rows, weight, bias))
    return PATHS[path or fastest(rows, weight)](rows, weight, bias, groups)
