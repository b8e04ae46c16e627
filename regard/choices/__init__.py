"""From a survey of the data to a recipe: one table of rules, said out loud."""

import os
from typing import Any, NamedTuple

from regard.choices.case import Case as Case
from regard.choices.case import Machine as Machine
from regard.choices.case import Values
from regard.choices.pictures import BASE as FOR_IMAGES
from regard.choices.pictures import for_images, image_sizes
from regard.choices.rules import CHOICES as CHOICES
from regard.data.survey import Survey, survey
from regard.errors import UserError
from regard.overrides import override
from regard.recipe import Pairs, parse, read_values

BASE = "bahdanau2015-small"  # whatever no rule chooses is as it stands there


class Choice(NamedTuple):
    """A recipe's values, and what to say of them."""

    values: Values
    found: Survey
    told: list[tuple[str, str, str]]  # the rule, what it chose as overrides, why


def here() -> Machine:
    import torch

    return Machine(
        torch.cuda.is_available(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )


def choose_recipe(
    files: dict[str, Any], machine: Machine | None = None, seed: int = 1, held_out: int | None = None, tokenizer: Any = None
) -> Choice:
    """The recipe for these training files, and for the tokenizer that was asked for, if one was.

    The same files and the same kind of machine give the same recipe.
    """
    pairs = parse(Pairs, files, "data.train")
    if others := pairs.named.keys() - {"source", "target"}:
        raise UserError(f"--column {min(others)}=...: without a recipe a model from source to target is trained; name a recipe")
    found = survey(pairs, held_out, seed)
    if sizes := image_sizes(pairs):
        rules = for_images(found, sizes, machine or here())
        chosen = {key: value for _, values, _ in rules for key, value in values.items()}
        return Choice(as_recipe(chosen, found, FOR_IMAGES), found, [(name, said(values), why) for name, values, why in rules])
    asked = {"data.tokenizer": {**read_values(BASE)["data"]["tokenizer"], **tokenizer}} if tokenizer else {}
    case, told = Case(found, machine or here(), asked), list[tuple[str, str, str]]()
    for name, rule in CHOICES.items():
        values = rule.choose(case)
        case.chosen.update(values)
        if values:
            told.append((name, said(values), rule.reason(case)))
    return Choice(as_recipe(case.chosen, found), found, told)


def said(values: Values) -> str:
    return "  ".join(f"{key}={shown(value)}" for key, value in values.items())


def shown(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(one)}" for key, one in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def as_recipe(chosen: Values, found: Survey, base: str = BASE) -> dict[str, Any]:
    """Over a built-in recipe; sections that name a kind take the place of its own."""
    values = read_values(base)
    values["about"] = f"Chosen from the data: {found.rows:,} rows"
    values["training"].pop("label_smoothing", None)
    for key, value in chosen.items():
        *path, last = key.split(".")
        section = values
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return override(values, [])
