"""Names of a model's tensors as older files spell them: a model that was saved or trained before still loads."""

import re
from collections.abc import Mapping
from typing import TypeVar

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
