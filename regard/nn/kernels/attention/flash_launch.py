"""What the kernels of flash attention are called with. flash.py says what is computed."""

import math
from functools import singledispatch
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.nn.kernels.attention.flash_plans import COLUMNS, STRIP, WORKSPACE, Plan, plan_for
from regard.nn.kernels.recurrent.scan import interpreted

LOG2E = math.log2(math.e)


class Rule(NamedTuple):
    """Which keys count, and what is asked for besides Σ_j α_ij v_j."""

    scale: float
    visible: Tensor | None = None
    first: Tensor | None = None
    last: Tensor | None = None
    deviation: float = 1.0
    picks: bool = False
    straight_through: bool = False
    seed: int | None = None
    words: Tensor | None = None
    target: Tensor | None = None


class Saved(NamedTuple):
    """What the way back reads."""

    query: Tensor
    keys: Tensor
    values: Tensor | None
    centre: Tensor | None
    mixed: Tensor | None  # Σ_j w_ij v_j
    level: Tensor  # ln Σ_j e^s_ij
    matched: Tensor | None
    place: Tensor | None
    low: Tensor | None  # the keys that each block of queries went through
    high: Tensor | None


class Outer(NamedTuple):
    """Gradients that come in."""

    context: Tensor | None
    slack: Tensor | None  # of log p of the choice, less that of the logarithm of the sum
    choice: Tensor | None
    match: Tensor | None


def or_else(dummy: Tensor, *parts: Tensor | None) -> list[Tensor]:
    """A kernel takes a tensor everywhere, and does not read those that are not there."""
    return [dummy if part is None else part for part in parts]


def plan_of(query: Tensor, values: Tensor | None) -> Plan:
    return plan_for(query.shape[-1], width_of(values), query.element_size())


def width_of(values: Tensor | None) -> int:
    return 1 if values is None else values.shape[-1]


def precision() -> str:
    return "ieee" if interpreted() else "tf32x3"  # of float32: three products of 19-bit parts


def scope(query: Tensor, centre: Tensor | None, rule: Rule) -> list[Tensor]:
    visible = None if rule.visible is None else rule.visible.contiguous().view(torch.uint8)
    return or_else(query, visible, rule.first, rule.last, centre, rule.words, rule.target)


def factors(rule: Rule) -> tuple[float, float]:
    """Scores and exponents of Gaussians as powers of two."""
    return rule.scale * LOG2E, LOG2E / (2 * rule.deviation**2)


def sizes(query: Tensor, keys: Tensor, rule: Rule) -> tuple[int, int, int, int]:
    """Heads, heads that have windows of their own, lengths."""
    return query.shape[1], 1 if rule.first is None else rule.first.shape[1], query.shape[2], keys.shape[2]


def shapes(plan: Plan, query: Tensor, values: Tensor | None) -> dict[str, Any]:
    return {"SIZE": query.shape[-1], "VALUE": width_of(values), "C": plan.chunk, "CV": plan.slice_, "PRECISION": precision()}


def flags(tile_keys: int, keys: Tensor, rule: Rule) -> dict[str, bool]:
    hides, windowed = rule.visible is not None, rule.first is not None
    return {"HIDES": hides, "WINDOW": windowed, "PLAIN": not hides and not windowed and keys.shape[2] % tile_keys == 0}


def back_flags(saved: Saved, outer: Outer) -> dict[str, bool]:
    """SOFT: gradients pass through the weights; without a gradient of the context there is nothing for a centre either."""
    soft = saved.mixed is not None and outer.context is not None
    gauss = saved.centre is not None and outer.context is not None
    return {"GAUSS": gauss, "SOFT": soft, "CHOICE": outer.choice is not None, "MATCH": outer.match is not None}


@singledispatch
def launch_look(
    query: Tensor, keys: Tensor, values: Tensor | None, centre: Tensor | None, rule: Rule, mixes: bool
) -> tuple[Saved, Tensor | None, Tensor | None]:
    """What is saved, what was picked, and log p of it."""
    plan, shape = plan_of(query, values), query.shape[:3]
    saved, picked, log_prob = outputs(query, keys, values, centre, rule, mixes, plan)
    if programs := math.prod(shape[:2]) * -(-shape[2] // plan.look.queries):
        from regard.nn.kernels.attention.flash_tiles import look

        look[programs, -(-width_of(values) // plan.slice_)](
            query, keys, *or_else(query, values, saved.mixed, picked, saved.level, saved.matched, saved.place, log_prob),
            *or_else(query, saved.low, saved.high), *scope(query, centre, rule), rule.seed or 0, *factors(rule),
            *sizes(query, keys, rule), **shapes(plan, query, values), **flags(plan.look.keys, keys, rule),
            **plan.look.options(), GAUSS=centre is not None, SOFT=mixes, PICK=rule.picks, NOISE=rule.seed is not None,
            MATCH=rule.words is not None,
        )  # fmt: skip
    return saved, picked, log_prob


def outputs(
    query: Tensor, keys: Tensor, values: Tensor | None, centre: Tensor | None, rule: Rule, mixes: bool, plan: Plan
) -> tuple[Saved, Tensor | None, Tensor | None]:
    """Room for what `look` writes."""
    shape = query.shape[:3]

    def number(wanted: bool = True, kind: torch.dtype = torch.float32) -> Tensor | None:
        return query.new_empty(shape, dtype=kind) if wanted else None

    def context(wanted: bool) -> Tensor | None:
        return query.new_empty(*shape, width_of(values)) if wanted else None

    blocks = -(-shape[2] // plan.look.queries)
    bounds = (None, None) if rule.first is None else query.new_empty(2, *shape[:2], blocks, dtype=torch.int32).unbind()
    level, matched, place = number(), number(rule.words is not None), number(rule.picks, torch.int64)
    assert level is not None
    saved = Saved(query, keys, values, centre, context(mixes), level, matched, place, *bounds)
    return saved, context(rule.picks), number(rule.picks)


class Into(NamedTuple):
    """Gradients that go out."""

    query: Tensor
    keys: Tensor
    values: Tensor | None
    centre: Tensor | None


def gradients_of(saved: Saved, outer: Outer, rule: Rule) -> Into:
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
        launch_back(saved, outer, rule, plan, found)
    return found if centre is None or found.centre is None else found._replace(centre=found.centre.to(centre.dtype))


def launch_back(saved: Saved, outer: Outer, rule: Rule, plan: Plan, into: Into) -> None:
    from regard.nn.kernels.attention.flash_backward import back_keys, back_query

    query, keys, values = saved.query, saved.keys, saved.values
    heads, middle = query.shape[0] * query.shape[1], torch.empty_like(saved.level)
    asked, around = back_flags(saved, outer) | shapes(plan, query, values), scope(query, saved.centre, rule)
    numbers = (rule.scale, *factors(rule), *sizes(query, keys, rule))
    marks, coming = or_else(query, saved.matched, saved.place), or_else(query, outer.slack, outer.choice, outer.match)
    tile = plan.back_query
    back_query[(heads * -(-query.shape[2] // tile.queries),)](
        query, keys, *or_else(query, values, saved.mixed, outer.context), saved.level, *marks, *coming, middle, into.query,
        *or_else(query, into.centre), *around, *numbers, **asked, **flags(tile.keys, keys, rule), **tile.options(),
        SLACKS=outer.slack is not None,
    )  # fmt: skip
    tile = plan.back_keys
    back_keys[(heads * -(-keys.shape[2] // tile.keys),)](
        query, keys, *or_else(query, values, outer.context), saved.level, *marks, *coming[1:], middle, into.keys,
        *or_else(query, into.values, saved.low, saved.high), *around, *numbers, **asked, **flags(tile.keys, keys, rule),
        **tile.options(), FM=plan.look.queries, PICK=rule.picks, GIVES=into.values is not None,
    )  # fmt: skip


def launch_wide(saved: Saved, outer: Outer, rule: Rule, plan: Plan, by_centre: Tensor | None) -> Into:
    """Some query rows at a time, so that the workspace stays small however long the sequences are."""
    query, source, gives = saved.query, saved.keys.shape[2], outer.context is not None and saved.values is not None
    heads, target = query.shape[0] * query.shape[1], query.shape[2]
    rows = max(1, WORKSPACE // (heads * source * query.element_size() * (1 + gives)) // plan.back_query.queries)
    rows = min(target, rows * plan.back_query.queries)
    space = query.new_empty if rule.first is None else query.new_zeros  # what no window reaches is never written
    multiply = products if rule.first is None else window_products
    queries: list[Tensor] = []
    keys = values = None
    for begin in range(0, target, rows):
        work = space(1 + gives, heads, min(rows, target - begin), source).unbind()
        launch_slopes(saved, outer, rule, plan, by_centre, work, begin)
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


def launch_slopes(
    saved: Saved, outer: Outer, rule: Rule, plan: Plan, by_centre: Tensor | None, work: tuple[Tensor, ...], begin: int
) -> None:
    """Fills the workspace: scale times the gradients of the scores, and the weights if values have gradients."""
    from regard.nn.kernels.attention.wide_tiles import wide_slopes

    query, keys, tile = saved.query, saved.keys, plan.back_query
    heads, rows, _ = work[0].shape
    asked = back_flags(saved, outer) | shapes(plan, query, saved.values) | {"CV": STRIP}
    wide_slopes[(heads * -(-rows // tile.queries),)](
        query, keys, *or_else(query, saved.values, saved.mixed, outer.context), saved.level,
        *or_else(query, saved.matched, saved.place, outer.slack, outer.choice, outer.match), work[-1], work[0],
        *or_else(query, by_centre), *scope(query, saved.centre, rule), rule.scale, *factors(rule), *sizes(query, keys, rule),
        begin, rows, **asked, **flags(tile.keys, keys, rule), **tile.options(), PICK=rule.picks, GIVES=len(work) > 1,
        SLACKS=outer.slack is not None,
    )  # fmt: skip


Products = tuple[Tensor, Tensor, Tensor | None]


def products(saved: Saved, outer: Outer, rule: Rule, plan: Plan, work: tuple[Tensor, ...], begin: int) -> Products:
    """dQ = dS K of these rows, and what they add to dK = dSᵀ Q and dV = Wᵀ dc."""
    keys = saved.keys
    if rule.visible is not None:  # 0 times a hidden key that is no number would be none either
        keys = keys.masked_fill(~rule.visible[:, None, :, None], 0.0)
    rows, slopes = slice(begin, begin + work[0].shape[1]), work[0]
    by_keys = torch.bmm(slopes.mT, saved.query.flatten(0, 1)[:, rows])
    by_values = torch.bmm(work[1].mT, outer.context.flatten(0, 1)[:, rows]) if outer.context is not None and work[1:] else None
    return torch.bmm(slopes, keys.flatten(0, 1)), by_keys, by_values


def window_products(saved: Saved, outer: Outer, rule: Rule, plan: Plan, work: tuple[Tensor, ...], begin: int) -> Products:
    """The same, through the keys inside windows alone."""
    from regard.nn.kernels.attention.wide_tiles import by_key, by_query

    query, keys, tile = saved.query, saved.keys, plan.back_keys
    heads, rows, source = work[0].shape
    lengths, bounds = (query.shape[2], source, begin, rows), or_else(query, saved.low, saved.high)
    fixed: dict[str, Any] = {"BC": COLUMNS, "PRECISION": precision(), **tile.options()}

    def turned(tiles: Tensor, other: Tensor) -> Tensor:
        out = other.new_empty(heads, source, other.shape[-1])
        grid = (heads * -(-source // tile.keys) * -(-other.shape[-1] // COLUMNS),)
        by_key[grid](tiles, other, out, *bounds, *lengths, WIDTH=other.shape[-1], FM=plan.look.queries, **fixed)
        return out

    straight = query.new_empty(heads, rows, query.shape[-1])
    by_query[(heads * -(-rows // tile.keys) * -(-query.shape[-1] // COLUMNS),)](
        work[0], keys, straight, *scope(query, None, rule)[:3], *sizes(query, keys, rule)[:2], *lengths, SIZE=query.shape[-1],
        HIDES=rule.visible is not None, **fixed | {"BM": tile.keys, "BN": tile.queries},
    )  # fmt: skip
    by_values = turned(work[1], outer.context) if outer.context is not None and work[1:] else None
    return straight, turned(work[0], query), by_values
