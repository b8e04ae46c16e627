"""All tokenizers. Each is saved as a directory: `tokenizer.json` and, where a library made it, the library's own file."""

import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from regard.data.marian_tokenizer import MarianTokenizer
from regard.data.subwords import (
    BytePairNFKCTokenizer,
    BytePairTokenizer,
    UnigramNFKCTokenizer,
    UnigramTokenizer,
    refuse_counts,
)
from regard.data.tokenizer import END, FORMAT, HIDDEN, LARGEST, PAD, SPECIALS, START, UNKNOWN, Fitter, Ids, Tokenizer
from regard.data.tokenizer_files import TOKENIZER_FILES, kind_of_file
from regard.data.untrusted import read_json
from regard.errors import DamagedError, UserError
from regard.recipe import Tokenizer as Section
from regard.recipe import choose, parse
from regard.tables import TABLES

__all__ = [
    "END", "PAD", "SPECIALS", "START", "TOKENIZERS", "TOKENIZER_FILES", "UNKNOWN", "Fitter", "Tokenizer", "fitter_of",
    "load_tokenizer", "size_of", "train_tokenizer",
]  # fmt: skip
SYMBOL = re.compile(r"\S+|[^\S ]|(?<!\S) | (?!\S)")  # words, and white space that is not one space between two of them
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
    def is_symbol(cls, one: str) -> bool:
        return list(cls.split(one)) == [one]

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
        if not isinstance(symbols, list) or not all(isinstance(one, str) and cls.is_symbol(one) for one in symbols):
            raise TypeError("its symbols are not such as a text is cut into")
        if len(set(symbols)) < len(symbols):
            raise ValueError("it has a symbol twice")
        return cls(symbols, bool(facts["lowercase"]))

    def facts(self) -> dict[str, Any]:
        return {"symbols": self.symbols}

    def added(self, spelling: bytes, bare: bool) -> bytes:
        return super().added(spelling, bare and bool(spelling.decode(errors="replace").strip()))

    def bare_after(self, token: int, spelling: bytes, bare: bool) -> bool:
        """At the start, after white space and where nothing is written in place of a space."""
        return bare if token in HIDDEN else not spelling.decode(errors="replace").strip()

    def tokenize(self, lines: Sequence[str]) -> list[list[int]]:
        find = self.ids.get
        return [[find(symbol, UNKNOWN) for symbol in self.known(line)] for line in lines]

    def cut(self, lines: Sequence[str]) -> list[list[bytes]]:
        return [self.spell(self.known(line)) for line in lines]

    def known(self, line: str) -> Sequence[str]:
        """The symbols of a line, without those that it only leaves out where it does not know them."""
        return self.split(line)


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
        often = [symbol for symbol, count in self.counts.items() if count >= self.section.min_count]
        if not often:
            raise UserError(f"data.tokenizer.min_count={self.section.min_count}: nothing in this text comes so often")
        ranking = sorted(often, key=lambda symbol: (-self.counts[symbol], symbol))
        tokenizer = self.kind(ranking[: self.room], self.section.lowercase)
        tokenizer.trained_on = f"counts without the rarest words, for there are more than {SYMBOLS:,}" if self.rare else None
        return tokenizer


class WordTokenizer(SymbolTokenizer):
    """Words, each with the single space before it. All other white space (at the ends, tabs, line ends, each of several spaces)
    is a token of its own. The vocabulary is closed: a word that it lacks is ⁇, white space that it lacks only separates."""

    kind, spaced, unknown = "word", True, " ⁇"

    @staticmethod
    def split(line: str) -> Sequence[str]:
        words = line.split()
        return words if " ".join(words) == line else SYMBOL.findall(line)

    @classmethod
    def spell(cls, symbols: Sequence[str]) -> list[bytes]:
        return [(one if one.isspace() else " " + one).encode(errors="replace") for one in symbols]

    def known(self, line: str) -> Sequence[str]:
        return [symbol for symbol in self.split(line) if symbol in self.ids or not symbol.isspace()]

    def decode(self, ids: Ids, extra: Sequence[bytes] = ()) -> str:
        """A word after white space has no space of its own, nor has the first."""
        texts = [spelled.decode(errors="replace") for spelled in self.spelled(ids, extra) if spelled]
        after_word = [False, *(not text.isspace() for text in texts)]
        return "".join(text if text.isspace() or after else text[1:] for text, after in zip(texts, after_word, strict=False))


GLUE = ""  # between two symbols that no space separates
QUOTED = r"""(?<!\w)[A-Za-z]{0,2}(?:'(?:[^'\\\n]|\\.){0,200}'|"(?:[^"\\\n]|\\.){0,200}")(?!\w)"""
CODE = re.compile(rf"{QUOTED}|\w+|[^\w\s]|[^\S ]|(?<!\S) | (?!\S)")


class CodeTokenizer(SymbolTokenizer):
    """Strings in quotes, names and numbers, and every sign of punctuation, as code and text about code have them: the same
    token whatever stands beside it, so that it can be copied. A space comes between two of them unless the token GLUE does;
    other white space is a token of its own. The vocabulary is closed, as that of words is."""

    kind, spaced, unknown = "code", True, " ⁇"

    @staticmethod
    def split(line: str) -> Sequence[str]:
        found, end = list[str](), -1
        for match in CODE.finditer(line):
            white = match[0].isspace()
            found += [GLUE, match[0]] if match.start() == end and not white else [match[0]]
            end = -1 if white else match.end()
        return found

    @classmethod
    def is_symbol(cls, one: str) -> bool:
        return one == GLUE or super().is_symbol(one)

    @classmethod
    def spell(cls, symbols: Sequence[str]) -> list[bytes]:
        return [(one if one.isspace() or one == GLUE else " " + one).encode(errors="replace") for one in symbols]

    def known(self, line: str) -> Sequence[str]:
        return [symbol for symbol in self.split(line) if symbol in self.ids or not (symbol.isspace() or symbol == GLUE)]

    def spelled(self, ids: Ids, extra: Sequence[bytes] = ()) -> list[bytes]:
        """A symbol has its space unless it is the first, or comes after white space or GLUE."""
        found, spaced, glue = list[bytes](), False, self.ids.get(GLUE)
        for token, spelling in zip(ids, super().spelled(ids, extra), strict=True):
            white = spelling.decode(errors="replace").isspace()
            found.append(spelling if spaced or white else spelling.removeprefix(b" "))
            spaced = spaced if token in HIDDEN else not (token == glue or white)
        return found

    def plain(self, spelled: str) -> str:
        return spelled


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
        refuse_counts(section)
        self.section = section

    def add(self, lines: Iterable[str], column: str = "") -> None:
        pass

    def finish(self) -> ByteTokenizer:
        return ByteTokenizer(self.section.lowercase)


def fitter_of(section: Section) -> Fitter:
    kind = choose(TOKENIZERS, section.kind, "tokenizer") if section.file is None else kind_of_file(section.file)
    return kind.fitter(section)


def size_of(section: Section) -> int:
    """Of the vocabulary that is asked for, or that a file has."""
    return section.size if section.file is None else len(fitter_of(section).finish())


def train_tokenizer(section: Section, lines: Iterable[str]) -> Tokenizer:
    fitter = fitter_of(section)
    fitter.add(lines)
    return finished(fitter, section)


def finished(fitter: Fitter, section: Section) -> Tokenizer:
    tokenizer = fitter.finish()
    tokenizer.longest = section.longest
    return tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer that was saved there; DamagedError for what is not, to the last key, what one would save."""
    facts = read_json(path / "tokenizer.json", LARGEST)
    try:
        if facts["format"] != FORMAT:
            raise ValueError(f"format {facts['format']!r:.40} is not {FORMAT}")
        others: list[type[Tokenizer]] = [*TOKENIZER_FILES.values(), MarianTokenizer]
        kinds = {**TOKENIZERS, **{kind.kind: kind for kind in others}}
        tokenizer = choose(kinds, facts["kind"], "tokenizer").restore(facts, path)
        tokenizer.longest = parse(Section, {"longest": facts.get("longest")}).longest
        if json.loads(tokenizer.description) != facts:
            raise ValueError("it says more or other things than a tokenizer of its kind")
    except DamagedError:
        raise
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        what = f"no key {error}" if isinstance(error, KeyError) else str(error)
        raise DamagedError(f"{path / 'tokenizer.json'}: no tokenizer can be read from it: {what:.200}") from None
    return tokenizer


TOKENIZERS: dict[str, type[Tokenizer]] = {
    "unigram": UnigramTokenizer,
    "bpe": BytePairTokenizer,
    "unigram_nfkc": UnigramNFKCTokenizer,
    "bpe_nfkc": BytePairNFKCTokenizer,
    "word": WordTokenizer,
    "code": CodeTokenizer,
    "character": CharacterTokenizer,
    "byte": ByteTokenizer,
}
TABLES["tokenizer"] = lambda: TOKENIZERS
