"""A batch of a recipe's columns whose rows are all as long as the mean: what plans and measured rates compute with."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from regard.data.batching import Batch, Column
from regard.data.fields import FIELDS, Shape, configure_fields
from regard.data.tokenizers import size_of
from regard.errors import UserError
from regard.models import MODELS, ModelConfig
from regard.recipe import Data

FIRST = 4  # token that is no mark


class Lengths(NamedTuple):
    """Positions of a row in the mean, end marks included: of the column that is read, and of the one that is written."""

    source: int = 25
    target: int = 25

    def rows(self, batch_tokens: int) -> int:
        """Of a batch of so many tokens on its longer side."""
        return max(1, batch_tokens // max(self))


def shapes_of(data: Data, config: ModelConfig) -> dict[str, Shape]:
    """A column of text has as many words as the recipe asks for; what only the data know (names, vectors) is small."""
    fields = configure_fields(data, config.columns)
    return {name: shape_of(name, field) for name, field in fields.items()}


def shape_of(name: str, field: Any) -> Shape:
    tokenizer = getattr(field, "tokenizer", None)
    shape = FIELDS[field.kind].outline(field)
    if tokenizer is not None:
        shape = Shape(field.kind, (size_of(tokenizer), *shape.sizes[1:]))
    if 0 in shape.sizes:
        raise UserError(
            f"a plan reads no data, and nothing else says how large the column {name!r} of kind `{shape.kind}` is: set "
            f"data.fields.{name}.height and data.fields.{name}.width"
        )
    return shape


def example(config: ModelConfig, shapes: Mapping[str, Shape], lengths: Lengths, rows: int) -> Batch:
    """Words and names at random, always the same."""
    draws, written = np.random.default_rng(1), MODELS[config.kind].writes
    columns = {
        name: column(shape, rows, lengths.target if name == written else lengths.source, draws)
        for name, shape in shapes.items()
    }
    if config.copies_words:  # one word more than the vocabulary has
        size = shapes[written].sizes[0]
        columns["copies"] = Column(columns["source"].values.clip(max=size), size=size + 1)
    return Batch(columns)


def column(shape: Shape, rows: int, length: int, draws: np.random.Generator) -> Column:
    """Tokens after the marks, names from 1, or the zeros of vectors and images."""
    field = FIELDS[shape.kind]
    single, features, known = field.form == "single", field.features_of(shape), min(shape.sizes[:2])
    places = (rows, *features) if single else (rows, length, *features)
    if field.from_files:
        values: Any = np.zeros(places, field.width)
    else:
        values = draws.integers(*((FIRST, known) if field.marks or features else (1, known + 1)), places)
    return Column(values, times=0) if single else Column(values, np.full(rows, length))
