"""Tokenizers that others have trained: a file of SentencePiece or of Hugging Face's `tokenizers`, read by its own library."""

import hashlib
import json
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import sentencepiece

from regard.data.lines import reading, require_file
from regard.data.subwords import processed, refuse_counts
from regard.data.tokenizer import HIDDEN, LARGEST, SPECIALS, UNKNOWN, Fitter, Ids, Tokenizer
from regard.data.untrusted import read_plain
from regard.errors import DamagedError, UserError
from regard.recipe import Tokenizer as Section

CHECKED = 2_000  # lines of each column that are cut and joined again, to see whether they come back
SHOWN = 40  # characters of such a line


class TokenizerFile(Tokenizer):
    """Cuts and joins text as the library does. Its vocabulary follows our four specials, in its order, without its own."""

    library: ClassVar[str]

    def __init__(self, content: bytes, lowercase: bool = False) -> None:
        self.content = content
        self.theirs = self.open()  # their id of each of ours, from the fourth on
        if not self.theirs:
            raise ValueError("its vocabulary is empty")
        self.ours = {token: number for number, token in enumerate(self.theirs, start=len(SPECIALS))}
        super().__init__([self.spelling(token) for token in self.theirs], lowercase)

    @abstractmethod
    def open(self) -> list[int]:
        """Load the content; the ids that stand for text. ValueError or RuntimeError: no such file."""

    @abstractmethod
    def spelling(self, token: int) -> bytes:
        """What one of their tokens stands for, with the space before it."""

    @property
    @abstractmethod
    def their_unknown(self) -> int | None: ...

    @abstractmethod
    def join(self, tokens: list[int]) -> str:
        """The text of their tokens."""

    @classmethod
    def fitter(cls, section: Section) -> Fitter:
        return TokenizerFileFitter(cls, section)

    @classmethod
    def restore(cls, facts: dict[str, Any], directory: Path) -> "TokenizerFile":
        content = content_of(cls, facts, directory)
        try:
            return cls(content, bool(facts["lowercase"]))
        except (RuntimeError, ValueError) as error:
            raise DamagedError(f"{directory / cls.model_name}: {cls.library} cannot read it: {error!s:.200}") from None

    def facts(self) -> dict[str, Any]:
        return {"model": hashlib.sha256(self.content).hexdigest()}

    def model(self) -> bytes:
        return self.content

    def decode(self, ids: Ids, extra: Sequence[bytes] = ()) -> str:
        """By the library, where it knows all tokens: not words that were copied."""
        found = [self.their_token(int(token)) for token in ids if token not in HIDDEN]
        known = [token for token in found if token is not None]
        return self.join(known) if len(known) == len(found) else super().decode(ids, extra)

    def their_token(self, token: int) -> int | None:
        if token == UNKNOWN:
            return self.their_unknown
        return self.theirs[token - len(SPECIALS)] if token < len(self) else None

    def words(self, ids: Ids, extra: Sequence[bytes] = ()) -> list[int]:
        """A library may join what spellings separate: no token belongs to a word past the last."""
        last = max(len(self.decode(ids, extra).split()) - 1, 0)
        return [min(place, last) for place in super().words(ids, extra)]


def content_of(kind: type[TokenizerFile], facts: dict[str, Any], directory: Path) -> bytes:
    """Of the file that was saved beside `tokenizer.json`."""
    content = read_plain(path := directory / kind.model_name, LARGEST)
    if hashlib.sha256(content).hexdigest() != facts["model"]:
        raise DamagedError(f"{path}: not the one that tokenizer.json was written with")
    return content


class SentencePieceFile(TokenizerFile):
    """A `.model`; its control, unknown and unused pieces are left out."""

    kind, library, unknown = "sentencepiece", "SentencePiece", " ⁇ "

    def open(self) -> list[int]:
        self.processor = of = sentencepiece.SentencePieceProcessor(model_proto=self.content)
        self.spaced = of.normalize("x") == "▁x"
        ids = range(of.get_piece_size())
        return [token for token in ids if not (of.is_control(token) or of.is_unknown(token) or of.is_unused(token))]

    def spelling(self, token: int) -> bytes:
        piece: str = self.processor.id_to_piece(token)
        return bytes([int(piece[3:5], 16)]) if self.processor.is_byte(token) else piece.replace("▁", " ").encode()

    @property
    def their_unknown(self) -> int:
        return int(self.processor.unk_id())

    def join(self, tokens: list[int]) -> str:
        return str(self.processor.decode(tokens))

    def tokenize(self, lines: Sequence[str]) -> list[list[int]]:
        find = self.ours.get
        return [[find(token, UNKNOWN) for token in row] for row in processed(self.processor, lines, int)]

    def cut(self, lines: Sequence[str]) -> list[list[bytes]]:
        both = zip(self.tokenize(lines), processed(self.processor, lines, str), strict=True)
        return [
            [
                piece.replace("▁", " ").encode() if token == UNKNOWN else self.spellings[token]
                for token, piece in zip(*row, strict=True)
            ]
            for row in both
        ]


def letters_of_bytes() -> dict[str, int]:
    """How ByteLevel writes bytes (Radford et al. 2019): visible ones as they are, the others as letters from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTES = letters_of_bytes()


class HuggingFaceFile(TokenizerFile):
    """A `tokenizer.json`; special tokens and those that its post-processor adds are left out."""

    kind, library, unknown, model_name = "huggingface", "Hugging Face's tokenizers", "⁇", "huggingface.json"

    def open(self) -> list[int]:
        try:
            from tokenizers import Tokenizer as Library
        except ImportError:
            raise UserError("a tokenizer.json of Hugging Face needs `tokenizers`: pip install 'regard[tokenizers]'") from None
        self.written = json.loads(self.content.decode())
        try:
            self.tokenizer = Library.from_str(self.content.decode())
        except Exception as error:  # the library raises nothing more precise
            raise ValueError(str(error)) from None
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        special = {token for token, added in self.tokenizer.get_added_tokens_decoder().items() if added.special}
        special |= {*self.tokenizer.encode("").ids, -1 if self.their_unknown is None else self.their_unknown}
        self.tokenizer.encode_special_tokens = True  # `[CLS]` in a text is text
        ids = sorted(set(self.tokenizer.get_vocab().values()) - special)
        self.first = next((token for token in ids if self.join([token]).isalpha()), None)
        if (unknown := self.their_unknown) is not None:
            self.unknown = self.spelling(unknown).decode()
        return ids

    @cached_property
    def first_text(self) -> str:
        return "" if self.first is None else self.join([self.first])

    @cached_property
    def decoders(self) -> dict[str, Any]:
        """By type; a sequence has several."""
        decoder = self.written.get("decoder") or {}
        return {one["type"]: one for one in decoder.get("decoders", [decoder]) if "type" in one}

    @cached_property
    def their_unknown(self) -> int | None:
        """Unigram knows it by its id, the others by its name."""
        model = self.written["model"]
        name = model.get("unk_token")
        return model.get("unk_id") if name is None else self.tokenizer.token_to_id(name)

    def spelling(self, token: int) -> bytes:
        """As its decoder says; of most decoders we know by what the token adds to another one."""
        piece = str(self.tokenizer.id_to_token(token))
        if "ByteLevel" in self.decoders and all(letter in BYTES for letter in piece):
            return bytes(BYTES[letter] for letter in piece)
        if "ByteFallback" in self.decoders and re.fullmatch("<0x[0-9A-F]{2}>", piece):
            return bytes([int(piece[3:5], 16)])
        if (suffix := self.decoders.get("BPEDecoder", {}).get("suffix")) is not None:
            return piece.replace(suffix, " ").encode()
        before = [] if self.first is None else [self.first]
        return self.join([*before, token]).removeprefix(self.first_text).encode()

    def join(self, tokens: list[int]) -> str:
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=False)
        unknown = self.their_unknown
        return text if unknown not in tokens else text.replace(str(self.tokenizer.id_to_token(unknown)), "⁇")

    @cached_property
    def spaced(self) -> bool:  # type: ignore[override]
        return b"".join(self.cut(["x"])[0]).startswith(b" ")

    def encodings(self, lines: Sequence[str]) -> Any:
        try:
            return self.tokenizer.encode_batch(list(lines), add_special_tokens=False)
        except (TypeError, UnicodeError):  # half of a surrogate pair somewhere: no UTF-8 can hold it
            texts = [line.encode(errors="replace").decode() for line in lines]
            return self.tokenizer.encode_batch(texts, add_special_tokens=False)

    def tokenize(self, lines: Sequence[str]) -> list[list[int]]:
        find = self.ours.get
        return [[find(token, UNKNOWN) for token in row.ids] for row in self.encodings(lines)]

    def cut(self, lines: Sequence[str]) -> list[list[bytes]]:
        """An unknown token is the stretch of text that it stands for, and the space before it where there is one."""

        def surface(line: str, token: int, begin: int, end: int) -> bytes:
            if (ours := self.ours.get(token)) is not None:
                return self.spellings[ours]
            blank = " " if self.unknown.startswith(" ") and line[max(begin - 1, 0) : begin].strip() == "" else ""
            return (blank + line[begin:end].strip()).encode(errors="replace")

        rows = zip(lines, self.encodings(lines), strict=True)
        return [[surface(line, token, *span) for token, span in zip(row.ids, row.offsets, strict=True)] for line, row in rows]


class TokenizerFileFitter(Fitter):
    """Learns nothing; sees whether the training text comes back as it was."""

    def __init__(self, kind: type[TokenizerFile], section: Section) -> None:
        assert section.file is not None, "fitter_of"
        refuse_counts(section)
        self.tokenizer, self.path = read_tokenizer_file(kind, section.file, section.lowercase), section.file
        self.seen, self.tokens, self.unknown = Counter[str](), 0, list[str]()
        self.changed: tuple[str, str] | None = None

    def add(self, lines: Iterable[str], column: str = "") -> None:
        texts = [line.lower() if self.tokenizer.lowercase else line for line in lines][: CHECKED - self.seen[column]]
        self.seen[column] += len(texts)
        for text, ids, surfaces in zip(texts, self.tokenizer.encode(texts), self.tokenizer.surfaces(texts), strict=True):
            missing = [
                spelled.decode(errors="replace") for token, spelled in zip(ids, surfaces, strict=True) if token == UNKNOWN
            ]
            self.tokens, self.unknown = self.tokens + len(ids), self.unknown + missing
            if not missing and self.changed is None and (back := self.tokenizer.decode(ids)) != text:
                self.changed = text, back

    def finish(self) -> TokenizerFile:
        told = list[str]()
        if self.changed is not None:
            text, back = around_difference(*self.changed)
            told.append(f"does not give text back as it was: {text!r} comes back as {back!r}")
        if self.unknown:
            told.append(
                f"does not know {len(self.unknown):,} of {self.tokens:,} tokens, such as {self.unknown[0].strip()!r:.60}"
            )
        self.tokenizer.remark = f"({self.path}) {'; it '.join(told)}" if told else None
        return self.tokenizer


def around_difference(text: str, other: str) -> tuple[str, str]:
    """Where two texts begin to differ."""
    same = next(
        (place for place, both in enumerate(zip(text, other, strict=False)) if both[0] != both[1]), min(len(text), len(other))
    )
    begin = max(same - SHOWN // 2, 0)
    return text[begin : begin + SHOWN], other[begin : begin + SHOWN]


def read_tokenizer_file(kind: type[TokenizerFile], path: Path, lowercase: bool) -> TokenizerFile:
    """UserError for what is missing, broken or another file."""
    with reading(path):
        require_file(path)
        if (size := path.stat().st_size) > LARGEST:
            raise UserError(f"{path}: {size:,} bytes are too many for a tokenizer (data.tokenizer.file)")
        content = path.read_bytes()
    try:
        return kind(content, lowercase)
    except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, UserError):
            raise
        what = str(error).rpartition("] ")[2] or "it is empty"
        raise UserError(f"{path}: {kind.library} cannot read a tokenizer from it (data.tokenizer.file): {what:.200}") from None


def kind_of_file(path: Path) -> type[TokenizerFile]:
    """By how its name ends."""
    if path.suffix not in TOKENIZER_FILES:
        known = " or ".join(f"{suffix} ({kind.library})" for suffix, kind in TOKENIZER_FILES.items())
        raise UserError(f"data.tokenizer.file={path}: a file of a tokenizer ends in {known}")
    return TOKENIZER_FILES[path.suffix]


TOKENIZER_FILES: dict[str, type[TokenizerFile]] = {".model": SentencePieceFile, ".json": HuggingFaceFile}
