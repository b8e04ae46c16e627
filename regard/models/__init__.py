"""The shapes of model, by name, and the way from a recipe's `model` section to a module."""

from collections.abc import Mapping
from typing import Any

from regard.data.tokenizers import Tokenizer
from regard.errors import UserError
from regard.models.decoder_alone import DecoderAlone, DecoderAloneConfig
from regard.models.interface import Model
from regard.models.sequence_to_sequence import SequenceToSequence, SequenceToSequenceConfig
from regard.recipe import choose, parse

__all__ = [
    "MODELS",
    "DecoderAlone",
    "Model",
    "ModelConfig",
    "SequenceToSequence",
    "build",
    "configure",
    "refuse_two_vocabularies",
]

ModelConfig = SequenceToSequenceConfig | DecoderAloneConfig
MODELS: dict[str, type[Model]] = {"sequence_to_sequence": SequenceToSequence, "decoder_alone": DecoderAlone}


def configure(values: Mapping[str, Any]) -> ModelConfig:
    """The typed form of a recipe's `model` section, every default filled in."""
    model = choose(MODELS, values.get("kind", "sequence_to_sequence"), "model")
    config: Any = parse(model.Config, dict(values), where="model")
    found: ModelConfig = config
    return found


def build(config: ModelConfig, source_vocabulary: int, target_vocabulary: int) -> Model:
    return MODELS[config.kind](config, source_vocabulary, target_vocabulary)


def refuse_two_vocabularies(config: ModelConfig, source: Tokenizer, target: Tokenizer) -> None:
    """One table of words for both sides means that a token is the same word on both."""
    if config.shares_words and source.digest != target.digest:
        raise UserError(
            "the model has one table of words for both sides (model.share_embeddings, or a decoder alone), and they have two "
            "tokenizers: set data.tokenizer.shared=true"
        )
