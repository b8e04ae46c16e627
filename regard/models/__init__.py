"""The shapes of model, by name, and the way from a recipe's `model` section to a module."""

from collections.abc import Callable, Mapping
from typing import Any

from regard.data.fields import Field, Shape, Text
from regard.errors import UserError
from regard.models.decoder_alone import DecoderAlone
from regard.models.generator import Generator
from regard.models.interface import Model
from regard.models.labeller import Classifier, Labeller, Tagger
from regard.models.language_model import LanguageModel
from regard.models.recurrent_alone import RecurrentAlone
from regard.models.sequence_to_sequence import SequenceToSequence
from regard.recipe import choose, parse

__all__ = [
    "MODELS", "DecoderAlone", "Generator", "Labeller", "LanguageModel", "Model", "ModelConfig", "SequenceToSequence", "build",
    "configure", "refuse_two_vocabularies",
]  # fmt: skip

ModelConfig = Any  # the Config of an entry of MODELS
MODELS: dict[str, type[Model]] = {
    "sequence_to_sequence": SequenceToSequence,
    "decoder_alone": DecoderAlone,
    "recurrent_alone": RecurrentAlone,
    "language_model": LanguageModel,
    "tagger": Tagger,
    "classifier": Classifier,
}


def configure(values: Mapping[str, Any]) -> ModelConfig:
    """The typed form of a recipe's `model` section, every default filled in."""
    model = choose(MODELS, values.get("kind", "sequence_to_sequence"), "model")
    return parse(model.Config, dict(values), where="model")


def build(config: ModelConfig, *shapes: Shape | int) -> Model:
    """For columns of these shapes, in the order that the config names them; a number is that of a vocabulary."""
    columns = zip(config.columns.values(), shapes, strict=True)
    given = (Shape(kind, (shape,)) if isinstance(shape, int) else shape for kind, shape in columns)
    model: Callable[..., Model] = MODELS[config.kind]
    return model(config, *given)


def words_digest(field: Field) -> str:
    return field.tokenizer.words_digest if isinstance(field, Text) else field.digest


def refuse_two_vocabularies(config: ModelConfig, fields: Mapping[str, Field]) -> None:
    """One table of words for both sides means that a token is the same word on both."""
    if config.shares_words and len({words_digest(field) for field in fields.values()}) > 1:
        raise UserError(
            "the model has one table of words for both sides (model.share_embeddings, or a decoder alone), and they have two "
            "tokenizers: set data.tokenizer.shared=true"
        )
