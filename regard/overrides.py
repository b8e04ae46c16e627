"""`key.path=value`: changes to a recipe's plain values, from the command line or as a dict from Python."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from regard.errors import InputTypeError, RecipeError
from regard.plain import DEPTH, from_yaml, reason
from regard.problems import shown

Overrides = Sequence[str] | Mapping[str, Any]


def override(values: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """`training.updates=200`, or {"training.updates": 200}, sets values["training"]["updates"] = 200."""
    result = dict(values)
    for path, value in changes(overrides):
        result = set_at(result, path.split("."), value, path)
    return result


def changes(overrides: Overrides) -> list[tuple[str, Any]]:
    """Dotted keys and their values, in order; a value in text is YAML."""
    if isinstance(overrides, str) or not isinstance(overrides, Mapping | Sequence):
        given = f"{overrides!r:.60} ({type(overrides).__name__})"
        raise InputTypeError(
            f'overrides are a dict such as {{"training.updates": 200}} or a list of key.path=value, not {given}'
        )
    if isinstance(overrides, Mapping):
        return [(checked(path, path), value) for path, value in overrides.items()]
    found = []
    for text in overrides:
        path, separator, value = text.partition("=") if isinstance(text, str) else ("", "", "")
        found.append((checked(path if separator else "", text), scalar(value, text)))
    return found


def checked(path: object, told: object) -> str:
    if not isinstance(path, str) or not path or path.count(".") >= DEPTH:
        raise RecipeError(f"{shown(told)} is no override; write key.path=value, for example training.updates=200")
    return path


def scalar(text: str, where: str) -> Any:
    try:
        return number(from_yaml(text))
    except yaml.YAMLError as error:
        raise RecipeError(f"{shown(where)}: the value is not valid YAML: {reason(error)}") from None


def number(value: Any) -> Any:
    """YAML 1.1 reads 1e-3 as text: take it for the number it is."""
    try:
        return float(value) if isinstance(value, str) and "e" in value.lower() and value[0] in "0123456789.-+" else value
    except ValueError:
        return value


def set_at(values: Mapping[str, Any], path: Sequence[str], value: Any, whole: str) -> dict[str, Any]:
    key, *rest = path
    if not rest:
        return {**values, key: value}
    inner = values.get(key) or {}
    if not isinstance(inner, Mapping):
        raise RecipeError(f"{shown(whole, str)}: {shown(key)} is a value, not a section")
    return {**values, key: set_at(inner, rest, value, whole)}


def flatten(values: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """Nested values under dotted keys, as overrides write them."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= flatten(value, f"{where}{key}.") if isinstance(value, dict) else {f"{where}{key}": value}
    return flat
