"""From a survey of the data to a recipe: one table of rules, said out loud."""

import os
from typing import Any, NamedTuple

from regard.choices.case import Case as Case
from regard.choices.case import Machine as Machine
from regard.choices.case import Values
from regard.choices.pictures import image_sizes
from regard.choices.rules import CHOICES as CHOICES
from regard.choices.tasks import TASKS, Task, as_pairs
from regard.data.survey import Survey, count_text, survey
from regard.errors import UserError
from regard.overrides import override
from regard.recipe import Pairs, parse, read_values


class Choice(NamedTuple):
    """A recipe's values, and what to say of them."""

    values: Values
    found: Survey
    told: list[tuple[str, str, str]]  # the rule, what it chose as overrides, why
    task: Task


def here() -> Machine:
    import torch

    return Machine(
        torch.cuda.is_available(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


def choose_recipe(
    files: dict[str, Any], machine: Machine | None = None, seed: int = 1, held_out: int | None = None, tokenizer: Any = None,
    labels: bool = True,
) -> Choice:  # fmt: skip
    """The recipe for these training files, and for the tokenizer that was asked for, if one was. Without `labels` a model that
    writes a target for each source, whatever the rows are.

    The same files and the same kind of machine give the same recipe.
    """
    pairs, said = parse(Pairs, files, "data.train"), list[Task]()
    if others := pairs.named.keys() - {"source", "target"}:
        said = [one for one in TASKS.values() if pairs.named.keys() == {"source", one.writes}]
        if not said or not labels:
            told_of = "a model from source to target, label or tags is trained"
            raise UserError(f"--column {min(others)}=...: without a recipe {told_of}; name a recipe")
        pairs = parse(Pairs, as_pairs(files, said[0].writes))
    asked = {"data.tokenizer": tokenizer} if tokenizer else {}
    case = look_into(pairs, held_out, seed, machine or here())._replace(chosen=asked)
    if of_kind := [one for one in said if one.of_images == bool(case.images)]:
        return by_rules(of_kind[0], case, f"you named a column {of_kind[0].writes!r}")
    if said:
        raise UserError("--column tags=...: without a recipe images get texts or labels, no tags; name a recipe")
    task = next(one for one in TASKS.values() if one.fits(case) and (labels or one.writes == "target"))
    return by_rules(task, case, task.reason(case))


def look_into(pairs: Pairs, held_out: int | None, seed: int, machine: Machine) -> Case:
    """One text is only counted: what follows what in it is the model's to see, and its end is held out."""
    if "source" not in pairs.named:
        return Case(count_text(pairs), machine, {})
    return Case(survey(pairs, held_out, seed), machine, {}, image_sizes(pairs))


def by_rules(task: Task, seen: Case, reason: str) -> Choice:
    """What the task's rules choose, in turn; the user's tokenizer over that of the recipe it begins with."""
    base, told, found = read_values(task.base), list[tuple[str, str, str]](), seen.found
    asked = {key: {**base["data"]["tokenizer"], **own} for key, own in seen.chosen.items()}
    case = seen._replace(found=found.turned if task.source == "target" else found, chosen=asked)
    if reason:
        case.chosen["model.kind"] = base["model"]["kind"]
        told.append(("task", f"model.kind={case.chosen['model.kind']}", reason))
    for name, rule in task.rules.items():
        values = rule.choose(case)
        case.chosen.update(values)
        if values:
            told.append((name, joined(values), rule.reason(case)))
    return Choice(as_recipe(case.chosen, found, task.base), found, told, task)


def joined(values: Values) -> str:
    return "  ".join(f"{key}={shown(value)}" for key, value in values.items())


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(one)}" for key, one in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def as_recipe(chosen: Values, found: Survey, base: str) -> dict[str, Any]:
    """Over a built-in recipe; sections that name a kind take the place of its own."""
    values = read_values(base)
    values["about"] = f"Chosen from the data: {found.rows:,} rows"
    values["training"].pop("label_smoothing", None)
    return override(values, chosen)
