"""Columns of text: a tokenizer is part of each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from regard.data.field import FEWEST, Field, FieldFitter, Problems, Shape
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizers import TOKENIZERS, finished, fitter_of
from regard.errors import DamagedError, UserError
from regard.recipe import Section
from regard.recipe import Tokenizer as TokenizerSection


class TextConfig(Section):
    kind: Literal["text"] = "text"
    tokenizer: TokenizerSection | None = None  # of this column alone; data.tokenizer otherwise


class Text(Field):
    """A text, cut by its tokenizer; END follows the last token."""

    kind, form, marks, has_words, Config = "text", "marked", 1, True, TextConfig

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.largest = tokenizer, len(tokenizer)

    @classmethod
    def fitter(cls, config: TextConfig) -> FieldFitter:
        assert config.tokenizer is not None, "configure_fields"
        return TextFitter(config.tokenizer)

    @classmethod
    def outline(cls, config: Any) -> Shape:
        return Shape(cls.kind, (FEWEST,))

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, (len(self.tokenizer),))

    def encode(self, values: Sequence[str]) -> tuple[list[Any], Problems]:
        return self.tokenizer.encode(values), {}

    def facts(self) -> dict[str, Any]:
        return self.tokenizer.facts()

    @classmethod
    def restore(cls, facts: Mapping[str, Any]) -> "Text":
        raise DamagedError("a text's field is its tokenizer")

    @property
    def digest(self) -> str:
        return self.tokenizer.digest

    def save(self, path: Path) -> None:
        self.tokenizer.save(path)


class TextFitter(FieldFitter):
    def __init__(self, section: TokenizerSection) -> None:
        self.fitter, self.section = fitter_of(section), section

    def add(self, values: Sequence[str], column: str) -> None:
        self.fitter.add(values, column)

    def finish(self) -> Text:
        return Text(finished(self.fitter, self.section))


def words_alone(section: TokenizerSection, values: Sequence[str]) -> Sequence[str]:
    """What a tokenizer of words learns from where each word has a tag: white space that it has never seen only separates."""
    spaced = section.file is None and TOKENIZERS[section.kind].spaced
    return [" ".join(value.split()) for value in values] if spaced else values


def texts(source: Tokenizer, target: Tokenizer) -> dict[str, Field]:
    """The columns of most models."""
    return {"source": Text(source), "target": Text(target)}


def tokenizer_of(field: Field) -> Tokenizer:
    """Of a column that must be text."""
    if not isinstance(field, Text):
        raise UserError(f"a column of kind `text` is needed here, not `{field.kind}`")
    return field.tokenizer
