"""A plan as tables."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from regard.planning.lecture import Row, Trained
from regard.planning.plan import Plan

UNKNOWN_TIME = "Not known until a few steps are timed here (--device cpu, --device cuda) or you say a rate (--rate)."
MINUTE, HOUR, DAY = 60, 3600, 86_400


class Sheet(NamedTuple):
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def sheets(plan: Plan) -> Iterator[Sheet]:
    cost, lengths = plan.cost, plan.measured.lengths
    yield by_part(plan)
    each = f"{lengths.source} source and {lengths.target} target tokens per pair ({plan.measured.how})"
    whole = f"{plan.updates:,} updates = {plan.tokens:,} target tokens"
    yield Sheet(
        "training",
        ("", "FLOPs"),
        [
            ("forward, per target token", f"{cost.forward:.3g}"),
            ("backward, per target token", f"{2 * cost.forward:.3g}"),
            (whole, f"{plan.operations:.3g}"),
        ],
        f"{each}. A multiply-add is two, backward is twice forward, what is not a product is not counted.",
    )
    yield in_memory(plan)
    yield Sheet(
        "time",
        ("device", "FLOP/s", "time", ""),
        [(t.device, f"{t.rate:.3g}", spent(t.seconds), t.how) for t in plan.times],
        "Updates alone, without validation." if plan.times else UNKNOWN_TIME,
    )
    if plan.lecture is not None:
        yield compared(plan, plan.lecture)


def by_part(plan: Plan) -> Sheet:
    sizes, operations = plan.cost.parameters, plan.cost.operations
    rows = [(part, number(sizes, part), count(operations, part)) for part in {**sizes, **operations}]
    rows.append(("all", f"{plan.cost.size:,}", f"{plan.cost.forward:.3g}"))
    return Sheet(
        f"{plan.name}, by part", ("part", "parameters", "forward FLOPs per target token"), rows, "Tied tables count once."
    )


def number(sizes: Mapping[str, int], part: str) -> str:
    return f"{sizes[part]:,}" if part in sizes else ""


def count(operations: Mapping[str, float], part: str) -> str:
    return f"{operations[part]:.3g}" if part in operations else ""


def in_memory(plan: Plan) -> Sheet:
    columns = ("precision", "batch tokens", "weights", "gradients", "AdamW", "activations", "logits", "all, GB")
    rows = [
        (precision, f"{size:,}", *(f"{part / 1e9:.2f}" for part in memory), f"{memory.total / 1e9:.2f}")
        for (precision, size), memory in plan.memory.items()
    ]
    return Sheet("memory, GB", columns, rows, "What a step keeps at the most; libraries' own workspaces come on top.")


def compared(plan: Plan, row: Row) -> Sheet:
    known = [("en-de", row.german, row.german_by), ("en-fr", row.french, row.french_by)]
    rows = [(f"{row.system}, {pair}", f"{value:.2g}", by(how)) for pair, value, how in known if value is not None]
    rows.append(("ours, this recipe", f"{plan.operations:.2g}", "products of all updates, forward and backward"))
    return Sheet("the lecture's training cost", ("system", "FLOPs", "counted as"), rows)


def by(how: Trained | None) -> str:
    spent_on = "time x GPUs x what a GPU sustains"
    return spent_on if how is None else f"{spent_on}: {how.days:g} days x {how.gpus} {how.kind} = {how.operations:.2g}"


def spent(seconds: float) -> str:
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
        if seconds >= unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.1f} seconds"


def show(plan: Plan, console: Console) -> None:
    """Tables on a terminal, lines elsewhere."""
    for sheet in sheets(plan):
        if console.is_terminal:
            framed(sheet, console)
            continue
        print(sheet.title)
        for row in (sheet.columns, *sheet.rows):
            print("  " + "\t".join(row))
        if sheet.note:
            print(f"  {sheet.note}")


def framed(sheet: Sheet, console: Console) -> None:
    table = Table(title=sheet.title, caption=sheet.note or None, title_justify="left", caption_justify="left")
    for place, column in enumerate(sheet.columns):
        table.add_column(column, justify="left" if place == 0 else "right")
    for row in sheet.rows:
        table.add_row(*row)
    console.print(table)
