"""A recipe's plan: what it costs before it is trained."""

from typing import Any, NamedTuple

from regard.models import configure
from regard.planning.cost import PRECISIONS, Cost, Memory, cost_of, memory_of
from regard.planning.example import shapes_of
from regard.planning.lecture import ROWS, Row
from regard.planning.lengths import Measured, check, lengths_of
from regard.planning.rate import tokens_a_second
from regard.preflight import check_names
from regard.recipe import Recipe

BATCHES = 0.25, 1, 4  # of the recipe's own


class Time(NamedTuple):
    """Seconds of all updates at so many operations per second."""

    device: str
    rate: float
    seconds: float
    how: str


class Plan(NamedTuple):
    name: str
    measured: Measured
    cost: Cost
    tokens: int  # of the target, in all updates
    updates: int
    memory: dict[tuple[str, int], Memory]  # by precision and tokens of a batch
    times: list[Time]
    lecture: Row | None

    @property
    def operations(self) -> float:
        return self.tokens * self.cost.training


def plan(
    name: str, recipe: Recipe, source: int | None = None, target: int | None = None, device: str | None = None,
    rate: float | None = None,
) -> Plan:  # fmt: skip
    """`device` is measured; `rate`, in operations a second, is believed. Without either no time is told."""
    check_names(recipe)
    data, training = recipe.data, recipe.training
    config = configure(recipe.model)
    section, shapes = config.model_dump(mode="json"), shapes_of(data, config)
    measured = lengths_of(data, config, source, target)
    lengths, place = measured.lengths, "cpu" if device == "cpu" else "cuda"
    check(lengths, data.batch_tokens)
    cost = cost_of(section, shapes, lengths, place)
    tokens = training.updates * lengths.rows(data.batch_tokens) * lengths.target
    memory = {(kind, size): memory_of(cost, kind, size, place) for kind in PRECISIONS for size in batches(recipe, lengths)}
    times: list[Time] = []
    if rate is not None:
        times.append(timed("given", rate, tokens * cost.training, "--rate"))
    if device is not None:
        speed = tokens_a_second(section, shapes, lengths, data.batch_tokens // training.accumulate, training, device)
        times.append(
            timed(device, speed * cost.training, tokens * cost.training, f"{speed:,.0f} target tokens/s measured here")
        )
    return Plan(name, measured, cost, tokens, training.updates, memory, times, ROWS.get(name))


def batches(recipe: Recipe, lengths: tuple[int, ...]) -> list[int]:
    """A few sizes of what is computed at once, the recipe's among them."""
    piece = recipe.data.batch_tokens // recipe.training.accumulate
    return sorted({max(round(share * piece), *lengths) for share in BATCHES})


def timed(device: str, rate: float, operations: float, how: str) -> Time:
    return Time(device, rate, operations / rate, how)


def as_json(plan: Plan) -> dict[str, Any]:
    cost = plan.cost
    return {
        "recipe": plan.name,
        "lengths": {**plan.measured.lengths._asdict(), "how": plan.measured.how},
        "parameters": {**cost.parameters, "total": cost.size},
        "forward_flops_a_target_token": {**cost.operations, "total": cost.forward},
        "backward_flops_a_target_token": 2 * cost.forward,
        "updates": plan.updates,
        "target_tokens": plan.tokens,
        "training_flops": plan.operations,
        "memory": [
            {"precision": kind, "batch_tokens": size, **one._asdict(), "total": one.total}
            for (kind, size), one in plan.memory.items()
        ],
        "times": [one._asdict() for one in plan.times],
        "lecture": None if plan.lecture is None else {
            "system": plan.lecture.system, "en-de": plan.lecture.german, "en-fr": plan.lecture.french
        },
    }  # fmt: skip
