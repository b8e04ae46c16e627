"""What older files call tensors and keys of recipes: models, runs and recipes of before still load."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from pydantic import model_validator

from regard.overrides import flatten
from regard.recipe import Section

Value = TypeVar("Value")

# by the format of config.json that they came with: a tensor's name, what it is called now
RENAMED: dict[int, tuple[tuple[str, str], ...]] = {
    1: (
        (r"\.energy$", ".score_vector"),
        (r"\.usual_reward$", ".reward_baseline"),
        (r"\.own\.attention\.", ".self_attention.attention."),
        (r"\.leave_own\.", ".self_output."),
        (r"\.leave_cross\.", ".cross_output."),
        (r"\.after_own\.", ".after_self."),
        (r"\.(feedforward|network)\.enter\.", r".\1.up."),
        (r"\.(feedforward|network)\.leave\.", r".\1.down."),
    )
}


def current_name(name: str) -> str:
    """No name of today is an older one, so files of any format are read alike: checkpoints do not tell theirs."""
    for rules in RENAMED.values():
        for old, new in rules:
            name = re.sub(old, new, name)
    return name


def current_names(named: Mapping[str, Value]) -> dict[str, Value]:
    return {current_name(name): value for name, value in named.items()}


# keys of a recipe, in sections that have the newer one: what they were called, what they are called now
KEYS = {
    "size": "hidden_size", "inner": "feedforward_size", "inner_dropout": "feedforward_dropout", "number": "num_experts",
    "chosen": "top_k",
}  # fmt: skip


class Renamed(Section):
    """A section some of whose keys had other names."""

    @model_validator(mode="before")
    @classmethod
    def current_keys(cls, values: Any) -> Any:
        """Of both names of a key the last one counts: an override stands behind what it changes."""
        return {cls.current_key(key): value for key, value in values.items()} if isinstance(values, Mapping) else values

    @classmethod
    def current_key(cls, key: Any) -> Any:
        newer = KEYS.get(key) if isinstance(key, str) else None
        return newer if newer in cls.model_fields and key not in cls.model_fields else key


def older_keys(given: Mapping[str, Any], typed: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Dotted keys that go by older names, and their names of today."""
    for path in sorted(flatten(given).keys() - flatten(typed).keys()):
        if (newer := KEYS.get(path.rpartition(".")[2])) is not None:
            yield path, newer


def spelled_as(newer: Any, older: Any) -> Any:
    """Values of before, with their keys as `newer` has them."""
    if isinstance(older, list) and isinstance(newer, list) and len(older) == len(newer):
        return [spelled_as(new, old) for new, old in zip(newer, older, strict=True)]
    if not isinstance(older, Mapping) or not isinstance(newer, Mapping):
        return older
    names = {key: KEYS[key] if key in KEYS and key not in newer and KEYS[key] in newer else key for key in older}
    return {name: spelled_as(newer.get(name), older[key]) for key, name in names.items()}
