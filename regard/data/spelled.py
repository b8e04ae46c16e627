"""Columns of words that are spelled out: each position is a word and its characters."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from regard.bounds import Size
from regard.data.field import FEWEST, Field, FieldFitter, Problems, Shape
from regard.data.tokenizers import SPECIALS, CharacterTokenizer, WordTokenizer
from regard.errors import UserError
from regard.recipe import Section
from regard.recipe import Tokenizer as TokenizerSection


class SpelledConfig(Section):
    kind: Literal["spelled"] = "spelled"
    tokenizer: TokenizerSection | None = None  # of its words; data.tokenizer otherwise
    length: Size = 20  # characters of a word that are read: of a longer one the first and the last half


class Spelled(Field):
    """Words between spaces, each with its characters [time, 1 + length]: so a word that nobody knows can still be read."""

    kind, form, has_words, Config = "spelled", "plain", True, SpelledConfig

    def __init__(self, words: WordTokenizer, characters: CharacterTokenizer, length: int) -> None:
        self.words, self.characters, self.length = words, characters, length
        self.features, self.largest = (1 + length,), max(len(words), len(characters))

    @classmethod
    def fitter(cls, config: SpelledConfig) -> FieldFitter:
        return SpelledFitter(config)

    @classmethod
    def outline(cls, config: SpelledConfig) -> Shape:
        return Shape(cls.kind, (FEWEST, FEWEST, config.length))

    @classmethod
    def features_of(cls, shape: Shape) -> tuple[int, ...]:
        return (1 + shape.sizes[2],)

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, (len(self.words), len(self.characters), self.length))

    def encode(self, values: Sequence[str]) -> tuple[list[Any], Problems]:
        rows = [value.split() for value in values]
        known = {word: self.spell(word) for word in {word for row in rows for word in row}}
        nothing = np.zeros((0, *self.features), np.int64)
        return [np.stack([known[word] for word in row]) if row else nothing for row in rows], {}

    def spell(self, word: str) -> npt.NDArray[np.int64]:
        """The word, then its characters, then PAD."""
        half = self.length // 2
        seen = word if len(word) <= self.length else word[: self.length - half] + (word[-half:] if half else "")
        result = np.zeros(self.features, np.int64)
        result[0], result[1 : 1 + len(seen)] = self.words.encode([word])[0][0], self.characters.encode([seen])[0]
        return result

    def facts(self) -> dict[str, Any]:
        words = {"lowercase": self.words.lowercase, **self.words.facts()}
        return {"words": words, "characters": self.characters.facts(), "length": self.length}

    @classmethod
    def restore(cls, facts: Mapping[str, Any]) -> "Spelled":
        length, folder = facts["length"], Path()  # symbols have no file
        if type(length) is not int or not 0 < length <= 1 << 20:
            raise ValueError("its length is not a number of characters")
        words = WordTokenizer.restore(facts["words"], folder)
        characters = CharacterTokenizer.restore({**facts["characters"], "lowercase": False}, folder)
        assert isinstance(words, WordTokenizer)
        assert isinstance(characters, CharacterTokenizer)
        return cls(words, characters, length)


class SpelledFitter(FieldFitter):
    """Counts words as their tokenizer says, and keeps every character that some word has."""

    def __init__(self, config: SpelledConfig) -> None:
        assert config.tokenizer is not None, "configure_fields"
        if config.tokenizer.file is not None or config.tokenizer.kind != WordTokenizer.kind:
            raise UserError("a column of kind `spelled` has words between spaces: set data.tokenizer.kind=word and no file")
        self.words, self.length, self.counts = WordTokenizer.fitter(config.tokenizer), config.length, Counter[str]()

    def add(self, values: Sequence[str], column: str) -> None:
        plain = [" ".join(value.split()) for value in values]
        self.words.add(plain, column)
        for value in plain:
            self.counts.update(value)

    def finish(self) -> Spelled:
        words = self.words.finish()
        assert isinstance(words, WordTokenizer)
        letters = sorted(self.counts.keys() - {" "}, key=lambda letter: (-self.counts[letter], letter))
        return Spelled(words, CharacterTokenizer(letters[: (1 << 16) - len(SPECIALS)]), self.length)
