"""What every tokenizer can do: text to ids and back, tokens to words, save."""

import codecs
import hashlib
import json
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy.typing as npt

from regard.data.scripts import UNSPACED
from regard.recipe import Tokenizer as Section

T = TypeVar("T")
FORMAT = 1
LARGEST = 1 << 28  # bytes of a file that a tokenizer is read from
PAD, UNKNOWN, START, END = range(4)
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
Ids = Sequence[int] | npt.NDArray[Any]
HIDDEN = (PAD, START, END)  # they stand for no text; UNKNOWN stands for a text we cannot spell


class Fitter(ABC):
    """Learns a tokenizer from text that passes by once, in memory that is bounded."""

    @abstractmethod
    def add(self, lines: Iterable[str], column: str = "") -> None:
        """More lines of this column. Columns count as if each came whole, in the order of their first lines."""

    @abstractmethod
    def finish(self) -> "Tokenizer": ...


class Tokenizer(ABC):
    """`spellings` says what each id stands for, in UTF-8 bytes; the rest follows from it."""

    kind: ClassVar[str]
    blank: ClassVar[str] = " "  # how spellings write a space
    spaced: bool = False  # spellings carry the blank before a word, so a text starts with one not its own
    unknown: str = "⁇"
    trained_on: str | None = None  # what of the text, where it was not all of it
    remark: str | None = None  # what is to be said of it beside that
    longest: int | None = None  # tokens of a text that are read; None: all
    model_name: ClassVar[str] = "pieces.model"  # the file that `model` is saved in

    def __init__(self, spellings: Sequence[bytes], lowercase: bool = False) -> None:
        self.spellings = [b"", self.unknown.encode(), b"", b"", *spellings]
        self.lowercase = lowercase

    @classmethod
    @abstractmethod
    def fitter(cls, section: Section) -> Fitter: ...

    @classmethod
    @abstractmethod
    def restore(cls, facts: dict[str, Any], directory: Path) -> "Tokenizer":
        """The tokenizer `save` wrote; any ValueError, KeyError or TypeError means that it is damaged."""

    @abstractmethod
    def tokenize(self, lines: Sequence[str]) -> list[list[int]]: ...

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What `tokenizer.json` holds beside the kind."""

    def model(self) -> bytes | None:
        """What the file `model_name` holds, where there is one."""
        return None

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of every line, without START and END."""
        return self.shortened(self.tokenize([line.lower() for line in lines] if self.lowercase else lines))

    def surfaces(self, lines: Sequence[str]) -> list[list[bytes]]:
        """What each token of `encode(lines)` stands for in the text, spelled as `spellings` are; unknown words too."""
        return self.shortened(self.cut([line.lower() for line in lines] if self.lowercase else lines))

    def shortened(self, rows: list[list[T]]) -> list[list[T]]:
        """The tokens of each that are read."""
        return rows if self.longest is None else [row[: self.longest] for row in rows]

    def cut(self, lines: Sequence[str]) -> list[list[bytes]]:
        """Where nothing is unknown, the spellings themselves."""
        return [[self.spellings[token] for token in ids] for ids in self.tokenize(lines)]

    @cached_property
    def by_spelling(self) -> dict[bytes, int]:
        """The token of each spelling; the specials have none."""
        return {spelling: token for token, spelling in enumerate(self.spellings) if token >= len(SPECIALS)}

    def spelled(self, ids: Ids, extra: Sequence[bytes] = ()) -> list[bytes]:
        """Ids past the vocabulary are those of `extra`, words that one sentence alone knows; without it they are unknown."""
        if not extra and (not len(ids) or max(ids) < len(self)):
            return [self.spellings[token] for token in ids]
        words = dict(enumerate(extra, start=len(self)))
        unknown = self.spellings[UNKNOWN]
        return [self.spellings[token] if token < len(self) else words.get(token, unknown) for token in ids]

    def decode(self, ids: Ids, extra: Sequence[bytes] = ()) -> str:
        """The text, to the last blank; PAD, START and END leave no trace, UNKNOWN leaves ⁇."""
        return self.plain(b"".join(self.spelled(ids, extra)).decode(errors="replace"))

    def plain(self, spelled: str) -> str:
        """What is spelled so, as text: without the blank that spellings put before it."""
        text = spelled.replace(self.blank, " ")
        return text.removeprefix(" ") if self.spaced else text

    def added(self, spelling: bytes, bare: bool) -> bytes:
        """What a token spelled so adds to a text, in UTF-8; `bare`: where its blank is not written, as where a text begins."""
        added = spelling.replace(self.blank.encode(), b" ")
        return added.removeprefix(b" ") if bare and self.spaced else added

    def bare_after(self, token: int, spelling: bytes, bare: bool) -> bool:
        """Whether what follows this token is bare."""
        return bare and token in HIDDEN

    def pieces(self, ids: Ids, extra: Sequence[bytes] = ()) -> list[str]:
        """Every token for the eye."""
        both = zip(ids, self.spelled(ids, extra), strict=True)
        return [SPECIALS[token] if token < len(SPECIALS) else readable(spelling) for token, spelling in both]

    def words(self, ids: Ids, extra: Sequence[bytes] = ()) -> list[int]:
        """For every token its word, as a place in `decode(ids, extra).split()`; -1 for PAD, START and END."""
        places = self.word_places(self.spelled(ids, extra))
        return [-1 if token in HIDDEN else place for token, place in zip(ids, places, strict=True)]

    def word_places(self, spelled: Sequence[bytes]) -> list[int]:
        """A token belongs to the first word that it, or what follows it, spells; blanks at the end to the last word."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        parts = [decoder.decode(spelling) for spelling in spelled] + [decoder.decode(b"", final=True)]
        ends = [match.end() for match in re.finditer(r"\S+", "".join(parts).replace(self.blank, " "))]
        begins = accumulate((len(part) for part in parts[:-1]), initial=0)
        return [min(bisect_right(ends, begin), max(len(ends) - 1, 0)) for _, begin in zip(spelled, begins, strict=False)]

    @cached_property
    def spaceless(self) -> bool:
        """Whether its text has no spaces between words: nothing spells one, or most tokens are of scripts without any."""
        texts = [spelling.decode(errors="replace") for spelling in self.spellings[len(SPECIALS) :]]
        if not self.spaced and not any(self.blank in text for text in texts):
            return True
        return sum(UNSPACED.search(text) is not None for text in texts) > len(texts) / 2

    def __len__(self) -> int:
        return len(self.spellings)

    @property
    def remarks(self) -> list[str]:
        """What a run says of it when it is made."""
        trained_on = [] if self.trained_on is None else [f"was trained on {self.trained_on}"]
        first = [] if self.longest is None else [f"reads the first {self.longest:,} tokens of a text, and no more"]
        return [*trained_on, *first] if self.remark is None else [*trained_on, *first, self.remark]

    @property
    def description(self) -> str:
        longest = {} if self.longest is None else {"longest": self.longest}
        facts = {"format": FORMAT, "kind": self.kind, "lowercase": self.lowercase, **longest, **self.facts()}
        return json.dumps(facts, sort_keys=True) + "\n"

    @property
    def digest(self) -> str:
        """The same for two tokenizers exactly when they are the same."""
        return hashlib.sha256(self.description.encode() + (self.model() or b"")).hexdigest()

    @property
    def words_digest(self) -> str:
        """The same for two tokenizers whose tokens stand for the same, however they cut a text into them."""
        return self.digest

    def save(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        (path / "tokenizer.json").write_text(self.description, encoding="utf-8")
        model = self.model()
        if model is not None:
            (path / self.model_name).write_bytes(model)


def readable(spelling: bytes) -> str:
    """A word's first piece shows its blank as ▁, as SentencePiece writes it; half a letter shows its bytes."""
    try:
        text = spelling.decode().replace(" ", "▁")
    except UnicodeDecodeError:
        text = "\0"
    return text if text.isprintable() else "".join(f"<0x{byte:02X}>" for byte in spelling)
