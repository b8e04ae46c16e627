"""The persistent engine of a gated scan: one launch forward, one launch back (persistent.py), for any gated cell."""

import functools
import importlib.util
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.nn.kernels.recurrent.equation import equation_of, traceable
from regard.nn.outline import Outline
from regard.nn.recurrent.cell import GatedCell
from regard.nn.recurrent.gated_scan import Engine, Gradients, Pass, Pre, Track

KINDS_OF_NUMBER = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
KINDS = {"h": 1, "t": 2, "m": 3}
ROOM = 160 * 1024  # bytes of weights that a program may keep: a Hopper's shared memory, less what the tiles need
STRIP = 64  # rows of weights read at a time where they do not stay


class Plan(NamedTuple):
    """How a scan is cut into programs."""

    rows: int  # of the batch, a group
    units: int  # of the state, a program
    depth: int  # rows of a weight tile
    stays: bool  # whether a program's weights stay in its shared memory
    warps: int


def applies(cell: GatedCell, inputs: Tensor) -> bool:
    """Whether this machine can, and the cell's equation is one that can be traced."""
    return able(inputs) and traceable(cell)


def able(inputs: Tensor) -> bool:
    return inputs.is_cuda and inputs.dtype in KINDS_OF_NUMBER and available()


def stays(cell: GatedCell, inputs: Tensor) -> bool:
    """Whether the weights stay with the programs, in numbers of 16 bits: where the persistent scan beats cuDNN's."""
    kind = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else inputs.dtype
    products = sum(cell.count(letter) for letter in KINDS)
    plan = plan_for(len(inputs), cell.hidden_size, products, kind.itemsize, processors(inputs.device.index or 0))
    return kind.itemsize == 2 and plan.stays


def interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def here(tensor: Tensor) -> bool:
    """Whether our kernels take this tensor: on a GPU, interpreted, or not launched at all for an outline of a GPU's."""
    if isinstance(tensor, Outline):
        return tensor.planned == "cuda"
    return available() and (tensor.is_cuda or interpreted())


@functools.cache
def available() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def processors(index: int) -> int:
    return torch.cuda.get_device_properties(index).multi_processor_count if not interpreted() else 1


def power_of_two(number: int) -> int:
    return 1 << max(4, (number - 1).bit_length())  # 16 at least: what a tensor core multiplies


def plan_for(batch: int, hidden: int, products: int, width: int, limit: int) -> Plan:
    """The smallest groups whose programs all run at once, and weights that stay if they can."""
    depth = power_of_two(hidden)
    if products * depth * depth * width <= ROOM:  # one program holds all: nobody to meet
        return Plan(16, depth, depth, True, 4 if depth < 128 else 8)
    for units in (32, 16, 64):
        slices = -(-hidden // units)
        for rows in (16, 32, 64):
            fits = products * depth * units * width <= ROOM and rows * depth * width <= 1 << 15
            if fits and -(-batch // rows) * slices <= limit:
                return Plan(rows, units, depth, True, 4)
    units = next(units for units in (16, 32, 64, 128) if -(-hidden // units) <= limit)
    rows = 16 if -(-batch // 16) * -(-hidden // units) <= limit else 64
    return Plan(rows, units, min(depth, STRIP), False, 4)


def width_of(pre: Tensor) -> int:
    """Bytes that a weight takes: a float32 is kept in two parts, which tensor cores multiply one by one."""
    return pre.element_size() if pre.dtype != torch.float32 else 8


def layout(cell: GatedCell) -> dict[str, Any]:
    """The kernels' view of a cell: each block's kind of product, and where its weights begin."""
    kinds, starts, row = [0] * 4, [0] * 4, 0
    for letter, kind in KINDS.items():
        for place in cell.place(letter):
            kinds[place], starts[place], row = kind, row, row + 1
    facts: dict[str, Any] = {f"K{j}": kind for j, kind in enumerate(kinds)} | {f"R{j}": start for j, start in enumerate(starts)}
    facts |= {"LAST": kinds.index(3) if 3 in kinds else -1, "N": len(cell.terms), "H": cell.hidden_size}
    return facts | {"SQUASHED": 2 in kinds, "MEMORY": len(cell.State._fields) > 1, "NV": len(cell.vectors)}


class Launch(NamedTuple):
    """What both directions hand to their kernel."""

    grid: tuple[int]
    weights: Tensor
    vectors: Tensor
    mask: Tensor
    lengths: Tensor
    flags: Tensor
    options: dict[str, Any]
    groups: int


def prepare(fixed: Pass, pre: Pre) -> Launch:
    from triton import language as tl

    batch, hidden = len(pre), fixed.cell.hidden_size
    weights = torch.cat(list(fixed.weights.values()))
    plan = plan_of(pre, hidden, products_of(fixed))
    groups = -(-batch // plan.rows)
    kind = getattr(tl, KINDS_OF_NUMBER[pre.dtype])
    precision = "ieee" if interpreted() else "tf32x3"
    options = {
        "BB": plan.rows, "HS": plan.units, "K": plan.depth, "STAYS": plan.stays, "MASKED": fixed.mask is not None,
        "RAGGED": fixed.lengths is not None, "DT": kind, "PRECISION": precision, "num_warps": plan.warps, "num_stages": 1,
        "launch_cooperative_grid": pre.is_cuda,
    }  # fmt: skip
    vectors = torch.stack(list(fixed.vectors)).to(pre.dtype) if fixed.vectors else weights
    mask = weights if fixed.mask is None else fixed.mask.to(pre.dtype).contiguous()
    lengths = weights if fixed.lengths is None else fixed.lengths.to(torch.int32)
    flags = torch.zeros(groups * 32, dtype=torch.int32, device=pre.device)
    grid = (programs(plan, batch, hidden),)
    return Launch(grid, weights, vectors, mask, lengths, flags, layout(fixed.cell) | options, groups)


def pieces(pre: Tensor, hidden: int, products: int) -> Iterator[slice]:
    """So many rows at a time that all programs run at once."""
    batch = most = len(pre)
    while most > 16 and programs(plan_of(pre, hidden, products, most), most, hidden) > limit_of(pre):
        most = -(-most // 2)
    return (slice(start, start + most) for start in range(0, batch, most))


def programs(plan: Plan, batch: int, hidden: int) -> int:
    return -(-batch // plan.rows) * -(-hidden // plan.units)


def limit_of(pre: Tensor) -> int:
    """How many programs run at once: they wait for one another."""
    return processors(pre.device.index or 0) if pre.is_cuda else 1 << 20


def plan_of(pre: Tensor, hidden: int, products: int, batch: int | None = None) -> Plan:
    return plan_for(len(pre) if batch is None else batch, hidden, products, width_of(pre), limit_of(pre))


def products_of(fixed: Pass) -> int:
    return sum(weight.shape[0] for weight in fixed.weights.values()) // fixed.cell.hidden_size


def rows_of(fixed: Pass, rows: slice) -> Pass:
    lengths, mask = (None if part is None else part[rows] for part in (fixed.lengths, fixed.mask))
    return fixed._replace(lengths=lengths, mask=mask)


def forward(fixed: Pass, pre: Pre, tracks: Sequence[Track]) -> None:
    for rows in pieces(pre, fixed.cell.hidden_size, products_of(fixed)):
        launch_forward(rows_of(fixed, rows), pre[rows], [track[rows] for track in tracks])


def launch_forward(fixed: Pass, pre: Pre, tracks: Sequence[Track]) -> None:
    from regard.nn.kernels.recurrent.persistent import forward_scan

    launch, equation = prepare(fixed, pre), equation_of(fixed.cell)
    bias = launch.weights if fixed.bias is None else fixed.bias
    first = tracks[0][:, 0]
    reset = torch.empty_like(first) if "m" in fixed.weights else launch.weights
    squashed = torch.tanh(first).expand(2, -1, -1).contiguous() if "t" in fixed.weights else launch.weights
    forward_scan[launch.grid](
        pre, tracks[0], tracks[-1], reset, squashed, launch.weights, bias, launch.vectors, launch.mask, launch.lengths,
        launch.flags, pre.shape[1], len(pre), UPDATE=equation.update, RESET=equation.reset, BIASED=fixed.bias is not None,
        **launch.options,
    )  # fmt: skip


def backward(fixed: Pass, pre: Pre, tracks: Sequence[Track], outputs: Tensor, carried: Sequence[Tensor]) -> Gradients:
    gradient = torch.empty_like(pre)
    starts = [part.float().contiguous().clone() for part in carried]
    outputs = outputs if outputs.stride(-1) == 1 else outputs.contiguous()
    shares = [
        launch_backward(
            rows_of(fixed, rows), pre[rows], [track[rows] for track in tracks], outputs[rows], gradient[rows],
            [start[rows] for start in starts],
        )
        for rows in pieces(pre, fixed.cell.hidden_size, products_of(fixed))
    ]  # fmt: skip
    vectors = list(torch.stack(shares).sum(0).unbind(0))[: len(fixed.vectors)]
    return Gradients(gradient, starts, vectors)


def launch_backward(
    fixed: Pass, pre: Pre, tracks: Sequence[Track], outputs: Tensor, gradient: Pre, starts: Sequence[Tensor]
) -> Tensor:
    """Fills `gradient` and `starts`; returns the vectors' share."""
    from regard.nn.kernels.recurrent.persistent import backward_scan

    launch, equation = prepare(fixed, pre), equation_of(fixed.cell)
    vectors = pre.new_zeros(launch.groups, 3, fixed.cell.hidden_size, dtype=torch.float32)
    backward_scan[launch.grid](
        pre, tracks[0], tracks[-1], outputs, gradient, starts[0], starts[-1], vectors, launch.weights, launch.vectors,
        launch.mask, launch.lengths, launch.flags, pre.shape[1], len(pre), outputs.stride(0), outputs.stride(1),
        PULL=equation.pull, PULL_RESET=equation.pull_reset, **launch.options,
    )  # fmt: skip
    return vectors.sum(0)


PERSISTENT = Engine(forward, backward)
