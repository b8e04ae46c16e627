"""The persistent engine of a tape scan: one launch forward, one backward (persistent_tape.py)."""

from typing import Any

import torch
from torch import Tensor

from regard.nn.kernels.machine import DTYPES, interpreted, power_of_two
from regard.nn.kernels.recurrent.equation import equation_of
from regard.nn.kernels.recurrent.scan import ScanPlan, pieces, plan_of, programs
from regard.nn.recurrent.tape_scan import Fixed, TapeEngine, TapeGradients, Tapes

TILES = {"forward": 1 << 14, "backward": 1 << 13}  # elements of a stretch of the tape that a program reads at once
STAGES = 3  # of a stretch: the next ones are on their way while this one is computed
SHARED = 200 * 1024  # bytes of shared memory that weights and stretches may take
WARPS = 8  # more than a gated scan's: attention has much to do between two meetings


def options_for(fixed: Fixed, projected: Tensor, plan: ScanPlan, direction: str) -> dict[str, Any]:
    from triton import language as tl

    hidden, interpreter = fixed.query.shape[0], interpreted()
    whole = power_of_two(hidden)
    positions = 16 if interpreter else max(8, TILES[direction] // whole)
    return {
        "H": hidden, "BB": plan.rows, "HS": plan.units, "K": plan.depth, "KK": whole, "BJ": positions, "STAYS": plan.stays,
        "N": fixed.width // hidden, "MEMORY": fixed.equation.starts > 1, "GIVEN": fixed.given,
        "PARTS": 2 if -(-hidden // plan.units) >= 2 * plan.rows else 1, "DT": getattr(tl, DTYPES[projected.dtype]),
        "PRECISION": "ieee" if interpreter else "tf32x3", "FAST": not interpreter, "num_warps": WARPS, "num_stages": 1,
        "STAGES": stages(fixed, plan, positions * whole, projected.element_size()),
        "launch_cooperative_grid": projected.is_cuda,
    }  # fmt: skip


def stages(fixed: Fixed, plan: ScanPlan, numbers: int, width: int) -> int:
    """As many stretches in flight as there is room for beside the weights."""
    weights = products_of(fixed) * plan.depth * plan.units * (width if width == 2 else 8) if plan.stays else 0
    return max(1, min(STAGES, (SHARED - weights) // (3 * numbers * width)))


def products_of(fixed: Fixed) -> int:
    return fixed.width // fixed.query.shape[0] + 2


def rows_of(fixed: Fixed, rows: slice) -> Fixed:
    return fixed._replace(visible=fixed.visible[rows])


def common(fixed: Fixed, projected: Tensor) -> tuple[ScanPlan, tuple[int], Tensor, Tensor, Tensor]:
    """The plan, the grid, all weights in one block, which old positions count, and the flags of the meetings."""
    hidden, batch = fixed.query.shape[0], len(projected)
    plan = plan_of(projected, hidden, products_of(fixed))
    flags = torch.zeros(-(-batch // plan.rows) * 32, dtype=torch.int32, device=projected.device)
    weights = torch.cat([fixed.gates, fixed.query, fixed.key])
    return plan, (programs(plan, batch, hidden),), weights, fixed.visible.to(torch.int8).contiguous(), flags


def forward(fixed: Fixed, projected: Tensor, tapes: Tapes) -> None:
    for rows in pieces(projected, fixed.query.shape[0], products_of(fixed)):
        launch_forward(rows_of(fixed, rows), projected[rows], Tapes(*(tape[rows] for tape in tapes)))
    tapes.keys[:, -1] = tapes.hidden[:, -1] @ fixed.key.T
    if fixed.equation.starts == 1:
        tapes.memory[:, fixed.before :] = tapes.hidden[:, fixed.before :]


def launch_forward(fixed: Fixed, projected: Tensor, tapes: Tapes) -> None:
    from regard.nn.kernels.recurrent.persistent_tape import forward_tape

    plan, grid, weights, visible, flags = common(fixed, projected)
    forward_tape[grid](
        projected, tapes.queries, tapes.hidden, tapes.memory, tapes.keys, tapes.contexts, tapes.adapted, tapes.log_sums,
        visible, weights, fixed.score_vector, flags, projected.shape[1], len(projected), fixed.before, projected.stride(0),
        UPDATE=equation_of(fixed.equation).update, **options_for(fixed, projected, plan, "forward"),
    )  # fmt: skip


def backward(fixed: Fixed, projected: Tensor, tapes: Tapes, gradients: tuple[Tensor, ...]) -> TapeGradients:
    parts = [
        launch_backward(
            rows_of(fixed, rows), projected[rows], Tapes(*(tape[rows] for tape in tapes)), tuple(one[rows] for one in gradients)
        )
        for rows in pieces(projected, fixed.query.shape[0], products_of(fixed))
    ]
    *by_row, score_vector = zip(*parts, strict=True)
    return TapeGradients(*map(torch.cat, by_row), torch.stack(score_vector).sum(0))  # type: ignore[call-arg]


def launch_backward(fixed: Fixed, projected: Tensor, tapes: Tapes, gradients: tuple[Tensor, ...]) -> TapeGradients:
    from regard.nn.kernels.recurrent.persistent_tape import backward_tape

    plan, grid, weights, visible, flags = common(fixed, projected)
    kind, start, simple = projected.dtype, slice(0, fixed.before), fixed.equation.starts == 1
    hidden, memory, keys = (gradient.float().contiguous().clone() for gradient in gradients[:3])
    contexts = gradients[3].to(kind).contiguous().clone()
    if simple:  # one tape lies under both names
        hidden += memory
    adapted, queries = torch.zeros_like(tapes.adapted), torch.zeros_like(tapes.queries)
    batch, time, size = tapes.adapted.shape
    pre = projected.new_empty(batch, time, fixed.width)
    score_vector, middle = (torch.zeros(batch, width, dtype=torch.float32, device=pre.device) for width in (size, time))
    backward_tape[grid](
        projected, tapes.queries, tapes.hidden, tapes.memory, tapes.keys, tapes.contexts, tapes.adapted, tapes.log_sums,
        visible, hidden, memory, keys, contexts, adapted, queries, pre, score_vector, middle, weights, fixed.score_vector,
        flags, time, batch, fixed.before, projected.stride(0), PULL=equation_of(fixed.equation).pull,
        **options_for(fixed, projected, plan, "backward"),
    )  # fmt: skip
    first = contexts[:, 0].float() + (contexts[:, 1].float() if fixed.given else queries[:, 0].float() @ fixed.query.float())
    old = torch.zeros_like(memory[:, start]) if simple else memory[:, start]
    found = (pre, queries, hidden[:, start], old, keys, first)
    return TapeGradients(*(part.to(kind) for part in found), score_vector.sum(0))  # type: ignore[call-arg]


PERSISTENT_TAPE = TapeEngine(forward, backward)
