"""All tokenizers. Each is saved as a directory: `tokenizer.json` and, for SentencePiece, `pieces.model`."""

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.readers import BadRows, read_rows
from regard.data.subwords import BytePairTokenizer, UnigramTokenizer
from regard.data.tokenizer import END, FORMAT, LARGEST, PAD, SPECIALS, START, UNKNOWN, Fitter, Tokenizer
from regard.data.untrusted import read_json
from regard.errors import DamagedError, UserError
from regard.recipe import Pairs, choose
from regard.recipe import Tokenizer as Section

__all__ = [
    "END", "PAD", "SPECIALS", "START", "TOKENIZERS", "UNKNOWN", "Fitter", "Tokenizer", "fitter_of", "load_tokenizer",
    "train_tokenizer", "train_tokenizers",
]  # fmt: skip
SYMBOLS = 1 << 20  # distinct ones that are counted, at least


class SymbolTokenizer(Tokenizer):
    """A list of symbols, the most frequent first."""

    def __init__(self, symbols: Sequence[str], lowercase: bool = False) -> None:
        super().__init__(self.spell(symbols), lowercase)
        self.symbols = list(symbols)
        self.ids = {symbol: token for token, symbol in enumerate(symbols, start=len(SPECIALS))}

    @staticmethod
    @abstractmethod
    def split(line: str) -> Sequence[str]: ...

    @classmethod
    def spell(cls, symbols: Sequence[str]) -> list[bytes]:
        blank = " " if cls.spaced else ""
        return [(blank + symbol).encode(errors="replace") for symbol in symbols]

    @classmethod
    def fitter(cls, section: Section) -> "SymbolFitter":
        return SymbolFitter(cls, section)

    @classmethod
    def restore(cls, facts: dict[str, Any], directory: Path) -> "SymbolTokenizer":
        symbols = facts["symbols"]
        if not isinstance(symbols, list) or not all(isinstance(one, str) and list(cls.split(one)) == [one] for one in symbols):
            raise TypeError("its symbols are not such as a text is cut into")
        if len(set(symbols)) < len(symbols):
            raise ValueError("it has a symbol twice")
        return cls(symbols, bool(facts["lowercase"]))

    def facts(self) -> dict[str, Any]:
        return {"symbols": self.symbols}

    def tokenize(self, lines: Sequence[str]) -> list[list[int]]:
        find = self.ids.get
        return [[find(symbol, UNKNOWN) for symbol in self.split(line)] for line in lines]

    def cut(self, lines: Sequence[str]) -> list[list[bytes]]:
        return [self.spell(self.split(line)) for line in lines]


class SymbolFitter(Fitter):
    """Counts symbols. Where there are too many of them the rarest are forgotten, and counted anew should they come again."""

    def __init__(self, kind: type[SymbolTokenizer], section: Section) -> None:
        self.kind, self.section, self.room = kind, section, section.size - len(SPECIALS)
        if self.room < 1:
            raise UserError(f"data.tokenizer.size={section.size} leaves no room beside the {len(SPECIALS)} special tokens")
        self.counts: Counter[str] = Counter()
        self.rare = 0

    def add(self, lines: Iterable[str], column: str = "") -> None:
        for line in lines:
            self.counts.update(self.kind.split(line.lower() if self.section.lowercase else line))
            while len(self.counts) > max(SYMBOLS, 2 * self.room):
                self.rare += 1
                self.counts = Counter({symbol: count for symbol, count in self.counts.items() if count > self.rare})

    def finish(self) -> SymbolTokenizer:
        if not self.counts:
            raise UserError("there is no text to train a tokenizer on")
        ranking = sorted(self.counts, key=lambda symbol: (-self.counts[symbol], symbol))
        tokenizer = self.kind(ranking[: self.room], self.section.lowercase)
        tokenizer.trained_on = f"counts without the rarest words, for there are more than {SYMBOLS:,}" if self.rare else None
        return tokenizer


class WordTokenizer(SymbolTokenizer):
    """What stands between blanks."""

    kind, spaced, unknown = "word", True, " ⁇"

    @staticmethod
    def split(line: str) -> Sequence[str]:
        return line.split()


class CharacterTokenizer(SymbolTokenizer):
    """Unicode code points."""

    kind = "character"

    @staticmethod
    def split(line: str) -> Sequence[str]:
        return line


class ByteTokenizer(Tokenizer):
    """The bytes of UTF-8: nothing is unknown, nothing is learnt."""

    kind = "byte"

    def __init__(self, lowercase: bool = False) -> None:
        super().__init__([bytes([byte]) for byte in range(256)], lowercase)

    @classmethod
    def fitter(cls, section: Section) -> "ByteFitter":
        return ByteFitter(section)

    @classmethod
    def restore(cls, facts: dict[str, Any], directory: Path) -> "ByteTokenizer":
        return cls(bool(facts["lowercase"]))

    def facts(self) -> dict[str, Any]:
        return {}

    def tokenize(self, lines: Sequence[str]) -> list[list[int]]:
        return [[byte + len(SPECIALS) for byte in line.encode(errors="replace")] for line in lines]


class ByteFitter(Fitter):
    """Has nothing to learn."""

    def __init__(self, section: Section) -> None:
        self.section = section

    def add(self, lines: Iterable[str], column: str = "") -> None:
        pass

    def finish(self) -> ByteTokenizer:
        return ByteTokenizer(self.section.lowercase)


def fitter_of(section: Section) -> Fitter:
    return choose(TOKENIZERS, section.kind, "tokenizer").fitter(section)


def train_tokenizer(section: Section, lines: Iterable[str]) -> Tokenizer:
    fitter = fitter_of(section)
    fitter.add(lines)
    return fitter.finish()


def train_tokenizers(files: Pairs, fitters: Mapping[str, Fitter], bad_rows: BadRows) -> dict[str, Tokenizer]:
    """A tokenizer for each of these columns, in one pass over the rows; a fitter with two names learns from both columns."""
    for rows in read_rows(files):
        bad_rows.add(rows.faults)
        for column, fitter in fitters.items():
            fitter.add(rows.columns[column], column)
    finished = {number: fitter.finish() for number, fitter in {id(fitter): fitter for fitter in fitters.values()}.items()}
    return {column: finished[id(fitter)] for column, fitter in fitters.items()}


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer that was saved there; DamagedError for what is not, to the last key, what one would save."""
    facts = read_json(path / "tokenizer.json", LARGEST)
    try:
        if facts["format"] != FORMAT:
            raise ValueError(f"format {facts['format']!r:.40} is not {FORMAT}")
        tokenizer = TOKENIZERS[facts["kind"]].restore(facts, path)
        if json.loads(tokenizer.description) != facts:
            raise ValueError("it says more or other things than a tokenizer of its kind")
    except DamagedError:
        raise
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        what = f"no key or kind {error}" if isinstance(error, KeyError) else str(error)
        raise DamagedError(f"{path / 'tokenizer.json'}: no tokenizer can be read from it: {what:.200}") from None
    return tokenizer


TOKENIZERS: dict[str, type[Tokenizer]] = {
    "unigram": UnigramTokenizer,
    "bpe": BytePairTokenizer,
    "word": WordTokenizer,
    "character": CharacterTokenizer,
    "byte": ByteTokenizer,
}
