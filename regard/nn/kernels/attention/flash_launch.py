"""What the kernels of flash attention are called with. flash.py says what is computed."""

import math
from functools import singledispatch
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.nn.kernels.attention.flash_plans import COLUMNS, STRIP, WORKSPACE, FlashPlan, plan_for
from regard.nn.kernels.machine import interpreted, or_else

LOG2E = math.log2(math.e)


class FlashRule(NamedTuple):
    """Which keys count for a query, and whether it reads the best of them alone."""

    scale: float
    visible: Tensor | None = None
    first: Tensor | None = None
    last: Tensor | None = None
    deviation: float = 1.0
    picks: bool = False


class Saved(NamedTuple):
    """What backward reads."""

    query: Tensor
    keys: Tensor
    values: Tensor | None
    centre: Tensor | None
    mixed: Tensor | None  # Σ_j w_ij v_j
    log_sum: Tensor  # ln Σ_j e^s_ij
    place: Tensor | None  # the key that was picked
    low: Tensor | None  # the keys that each block of queries went through
    high: Tensor | None


class Outer(NamedTuple):
    """Gradients that come in."""

    context: Tensor | None
    log_sum: Tensor | None


def plan_of(query: Tensor, values: Tensor | None) -> FlashPlan:
    return plan_for(query.shape[-1], width_of(values), query.element_size())


def width_of(values: Tensor | None) -> int:
    return 1 if values is None else values.shape[-1]


def precision() -> str:
    return "ieee" if interpreted() else "tf32x3"  # of float32: three products of 19-bit parts


def scope(query: Tensor, centre: Tensor | None, rule: FlashRule) -> list[Tensor]:
    visible = None if rule.visible is None else rule.visible.contiguous().view(torch.uint8)
    return or_else(query, visible, rule.first, rule.last, centre)


def factors(rule: FlashRule) -> tuple[float, float]:
    """Scores and exponents of Gaussians as powers of two."""
    return rule.scale * LOG2E, LOG2E / (2 * rule.deviation**2)


def sizes(query: Tensor, keys: Tensor, rule: FlashRule) -> tuple[int, int, int, int]:
    """Heads, heads that have windows of their own, lengths."""
    return query.shape[1], 1 if rule.first is None else rule.first.shape[1], query.shape[2], keys.shape[2]


def shapes(plan: FlashPlan, query: Tensor, values: Tensor | None) -> dict[str, Any]:
    return {"SIZE": query.shape[-1], "VALUE": width_of(values), "C": plan.chunk, "CV": plan.slice_, "PRECISION": precision()}


def flags(tile_keys: int, keys: Tensor, rule: FlashRule) -> dict[str, bool]:
    hides, windowed = rule.visible is not None, rule.first is not None
    return {"HIDES": hides, "WINDOW": windowed, "PLAIN": not hides and not windowed and keys.shape[2] % tile_keys == 0}


def back_flags(saved: Saved, outer: Outer) -> dict[str, bool]:
    """SOFT: gradients pass through the weights; without a gradient of the context there is nothing for a centre either."""
    soft = saved.mixed is not None and outer.context is not None
    gauss = saved.centre is not None and outer.context is not None
    return {"GAUSS": gauss, "SOFT": soft}


@singledispatch
def launch_forward(query: Tensor, keys: Tensor, values: Tensor, centre: Tensor | None, rule: FlashRule) -> tuple[Tensor, Saved]:
    """The contexts, and what is saved."""
    plan, shape = plan_of(query, values), query.shape[:3]
    context, saved = outputs(query, keys, values, centre, rule, plan)
    if programs := math.prod(shape[:2]) * -(-shape[2] // plan.forward.queries):
        from regard.nn.kernels.attention.flash_tiles import attend_tiles

        attend_tiles[programs, -(-width_of(values) // plan.slice_)](
            query, keys, *or_else(query, values, saved.mixed, context, saved.log_sum, saved.place, saved.low, saved.high),
            *scope(query, centre, rule), *factors(rule), *sizes(query, keys, rule), **shapes(plan, query, values),
            **flags(plan.forward.keys, keys, rule), **plan.forward.options(), GAUSS=centre is not None, SOFT=not rule.picks,
            PICK=rule.picks,
        )  # fmt: skip
    return context, saved


def outputs(
    query: Tensor, keys: Tensor, values: Tensor, centre: Tensor | None, rule: FlashRule, plan: FlashPlan
) -> tuple[Tensor, Saved]:
    """Room for what the kernel writes."""
    shape = query.shape[:3]
    blocks = -(-shape[2] // plan.forward.queries)
    bounds = (None, None) if rule.first is None else query.new_empty(2, *shape[:2], blocks, dtype=torch.int32).unbind()
    context, log_sum = query.new_empty(*shape, width_of(values)), query.new_empty(shape, dtype=torch.float32)
    place = query.new_empty(shape, dtype=torch.int64) if rule.picks else None
    return context, Saved(query, keys, values, centre, None if rule.picks else context, log_sum, place, *bounds)


class Into(NamedTuple):
    """Gradients that go out."""

    query: Tensor
    keys: Tensor
    values: Tensor | None
    centre: Tensor | None


def gradients_of(saved: Saved, outer: Outer, rule: FlashRule) -> Into:
    query, keys, values, centre = saved[:4]
    plan, soft = plan_of(query, values), outer.context is not None
    by_centre = torch.empty_like(centre, dtype=torch.float32) if centre is not None and soft else None
    if query.numel() == 0 or keys.numel() == 0:
        found = Into(*(None if part is None else torch.zeros_like(part) for part in saved[:4]))  # type: ignore[arg-type]
    elif plan.wide:
        found = launch_wide(saved, outer, rule, plan, by_centre)
    else:
        by_values = torch.empty_like(values) if values is not None and soft else None
        found = Into(torch.empty_like(query), torch.empty_like(keys), by_values, by_centre)
        launch_backward(saved, outer, rule, plan, found)
    return found if centre is None or found.centre is None else found._replace(centre=found.centre.to(centre.dtype))


def launch_backward(saved: Saved, outer: Outer, rule: FlashRule, plan: FlashPlan, into: Into) -> None:
    from regard.nn.kernels.attention.flash_backward import keys_backward, query_backward

    query, keys, values = saved.query, saved.keys, saved.values
    heads, middle = query.shape[0] * query.shape[1], torch.empty_like(saved.log_sum)
    asked, around = back_flags(saved, outer) | shapes(plan, query, values), scope(query, saved.centre, rule)
    numbers = (rule.scale, *factors(rule), *sizes(query, keys, rule))
    tile = plan.query_backward
    query_backward[(heads * -(-query.shape[2] // tile.queries),)](
        query, keys, *or_else(query, values, saved.mixed, outer.context), saved.log_sum, *or_else(query, outer.log_sum), middle,
        into.query, *or_else(query, into.centre), *around, *numbers, **asked, **flags(tile.keys, keys, rule),
        **tile.options(), SUMS=outer.log_sum is not None,
    )  # fmt: skip
    tile = plan.keys_backward
    keys_backward[(heads * -(-keys.shape[2] // tile.keys),)](
        query, keys, *or_else(query, values, outer.context), saved.log_sum, *or_else(query, saved.place), middle, into.keys,
        *or_else(query, into.values, saved.low, saved.high), *around, *numbers, **asked, **flags(tile.keys, keys, rule),
        **tile.options(), FM=plan.forward.queries, PICK=rule.picks, GIVES=into.values is not None,
    )  # fmt: skip


def launch_wide(saved: Saved, outer: Outer, rule: FlashRule, plan: FlashPlan, by_centre: Tensor | None) -> Into:
    """Some query rows at a time, so that the workspace stays small however long the sequences are."""
    query, source, gives = saved.query, saved.keys.shape[2], outer.context is not None and saved.values is not None
    heads, target = query.shape[0] * query.shape[1], query.shape[2]
    rows = max(1, WORKSPACE // (heads * source * query.element_size() * (1 + gives)) // plan.query_backward.queries)
    rows = min(target, rows * plan.query_backward.queries)
    space = query.new_empty if rule.first is None else query.new_zeros  # what no window reaches is never written
    multiply = products if rule.first is None else window_products
    queries: list[Tensor] = []
    keys = values = None
    for begin in range(0, target, rows):
        work = space(1 + gives, heads, min(rows, target - begin), source).unbind()
        launch_score_gradients(saved, outer, rule, plan, by_centre, work, begin)
        by_query, by_keys, by_values = multiply(saved, outer, rule, plan, work, begin)
        queries, keys, values = [*queries, by_query], more(keys, by_keys), more(values, by_values)
    joined = queries[0] if len(queries) == 1 else torch.cat(queries, dim=1)
    return Into(
        joined.view_as(query), like(keys, saved.keys), None if values is None else like(values, saved.values), by_centre
    )


def more(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    """Sums of several parts are kept in float32."""
    return part if total is None or part is None else total.float().add_(part)


def like(part: Tensor | None, other: Tensor | None) -> Tensor:
    assert part is not None
    assert other is not None
    return part.to(other.dtype).view_as(other)


def launch_score_gradients(
    saved: Saved, outer: Outer, rule: FlashRule, plan: FlashPlan, by_centre: Tensor | None, work: tuple[Tensor, ...], begin: int
) -> None:
    """Fills the workspace: scale times the gradients of the scores, and the weights if values have gradients."""
    from regard.nn.kernels.attention.wide_tiles import wide_score_gradients

    query, keys, tile = saved.query, saved.keys, plan.query_backward
    heads, rows, _ = work[0].shape
    asked = back_flags(saved, outer) | shapes(plan, query, saved.values) | {"CV": STRIP}
    wide_score_gradients[(heads * -(-rows // tile.queries),)](
        query, keys, *or_else(query, saved.values, saved.mixed, outer.context), saved.log_sum,
        *or_else(query, saved.place, outer.log_sum), work[-1], work[0], *or_else(query, by_centre),
        *scope(query, saved.centre, rule), rule.scale, *factors(rule), *sizes(query, keys, rule), begin, rows, **asked,
        **flags(tile.keys, keys, rule), **tile.options(), PICK=rule.picks, GIVES=len(work) > 1, SUMS=outer.log_sum is not None,
    )  # fmt: skip


Products = tuple[Tensor, Tensor, Tensor | None]


def products(saved: Saved, outer: Outer, rule: FlashRule, plan: FlashPlan, work: tuple[Tensor, ...], begin: int) -> Products:
    """dQ = dS K of these rows, and what they add to dK = dSᵀ Q and dV = Wᵀ dc."""
    keys = saved.keys
    if rule.visible is not None:  # 0 times a hidden key that is NaN would be NaN
        keys = keys.masked_fill(~rule.visible[:, None, :, None], 0.0)
    rows, scores = slice(begin, begin + work[0].shape[1]), work[0]
    by_keys = torch.bmm(scores.mT, saved.query.flatten(0, 1)[:, rows])
    by_values = torch.bmm(work[1].mT, outer.context.flatten(0, 1)[:, rows]) if outer.context is not None and work[1:] else None
    return torch.bmm(scores, keys.flatten(0, 1)), by_keys, by_values


def window_products(
    saved: Saved, outer: Outer, rule: FlashRule, plan: FlashPlan, work: tuple[Tensor, ...], begin: int
) -> Products:
    """The same, through the keys inside windows alone."""
    from regard.nn.kernels.attention.wide_tiles import by_key, by_query

    query, keys, tile = saved.query, saved.keys, plan.keys_backward
    heads, rows, source = work[0].shape
    lengths, bounds = (query.shape[2], source, begin, rows), or_else(query, saved.low, saved.high)
    fixed: dict[str, Any] = {"BC": COLUMNS, "PRECISION": precision(), **tile.options()}

    def turned(tiles: Tensor, other: Tensor) -> Tensor:
        out = other.new_empty(heads, source, other.shape[-1])
        grid = (heads * -(-source // tile.keys) * -(-other.shape[-1] // COLUMNS),)
        by_key[grid](tiles, other, out, *bounds, *lengths, WIDTH=other.shape[-1], FM=plan.forward.queries, **fixed)
        return out

    straight = query.new_empty(heads, rows, query.shape[-1])
    by_query[(heads * -(-rows // tile.keys) * -(-query.shape[-1] // COLUMNS),)](
        work[0], keys, straight, *scope(query, None, rule)[:3], *sizes(query, keys, rule)[:2], *lengths, SIZE=query.shape[-1],
        HIDES=rule.visible is not None, **fixed | {"BM": tile.keys, "BN": tile.queries},
    )  # fmt: skip
    by_values = turned(work[1], outer.context) if outer.context is not None and work[1:] else None
    return straight, turned(work[0], query), by_values
