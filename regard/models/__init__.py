"""The shapes of model, by name, and the way from a recipe's `model` section to a module."""

from collections.abc import Mapping
from typing import Any

from regard.models.sequence_to_sequence import SequenceToSequence, SequenceToSequenceConfig
from regard.recipe import choose, parse

__all__ = ["MODELS", "SequenceToSequence", "SequenceToSequenceConfig", "build", "configure"]

MODELS = {"sequence_to_sequence": SequenceToSequence}


def configure(values: Mapping[str, Any]) -> SequenceToSequenceConfig:
    """The typed form of a recipe's `model` section, every default filled in."""
    model = choose(MODELS, values.get("kind", "sequence_to_sequence"), "model")
    return parse(model.Config, dict(values), where="model")


def build(config: SequenceToSequenceConfig, source_vocabulary: int, target_vocabulary: int) -> SequenceToSequence:
    return MODELS[config.kind](config, source_vocabulary, target_vocabulary)
