"""Trials in words: what differs from the chosen recipe, and how well it did."""

from collections.abc import Mapping
from typing import Any

from regard.tuning.space import SPACE
from regard.tuning.trials import Reached


def told(name: str, value: Any) -> str:
    return "no" if value is None else SPACE[name].shown.format(value)


def told_values(values: Mapping[str, Any], chosen: Mapping[str, Any]) -> str:
    changes = [f"{name} {told(name, value)}" for name, value in values.items() if value != chosen[name]]
    return ", ".join(changes) or "as chosen"


def told_score(one: Reached | None) -> str:
    return "-" if one is None or one.score is None else f"{one.score:.4g}"
