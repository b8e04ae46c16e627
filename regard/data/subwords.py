"""Pieces of words: the SentencePiece tokenizers, trained on a bounded sample of the text."""

import hashlib
import io
import os
import random
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from regard.data.tokenizer import END, LARGEST, PAD, SPECIALS, START, UNKNOWN, Fitter, Tokenizer
from regard.data.untrusted import read_plain
from regard.errors import DamagedError, UserError
from regard.recipe import Tokenizer as Section

SAMPLE = 1_000_000  # lines a model is trained on at most
LETTERS = 1 << 23  # characters of all these lines together: training keeps some forty bytes for each
LONGEST = 4_000  # characters of such a line that are looked at
BYTES = 1_000  # vocabularies from this size on spell what they do not know in bytes


class SentencePieceTokenizer(Tokenizer):
    """Pieces of words, found by their statistics (Kudo & Richardson 2018)."""

    spaced, blank, unknown = True, "▁", " ⁇ "

    def __init__(self, model: bytes, lowercase: bool = False) -> None:
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.proto = model
        ids = range(len(SPECIALS), self.processor.get_piece_size())
        super().__init__([self.spelling(token) for token in ids], lowercase)

    def spelling(self, token: int) -> bytes:
        piece: str = self.processor.id_to_piece(token)
        if self.processor.is_byte(token):
            return bytes([int(piece[3:5], 16)])
        return piece.encode()

    @classmethod
    def fitter(cls, section: Section) -> "PieceFitter":
        return PieceFitter(cls, section)

    @classmethod
    def restore(cls, facts: dict[str, Any], directory: Path) -> "SentencePieceTokenizer":
        digest, lowercase, path = facts["model"], bool(facts["lowercase"]), directory / "pieces.model"
        model = read_plain(path, LARGEST)
        if hashlib.sha256(model).hexdigest() != digest:
            raise DamagedError(f"{path}: not the one that tokenizer.json was written with")
        try:
            tokenizer = cls(model, lowercase)
        except (RuntimeError, ValueError) as error:
            raise DamagedError(f"{path}: not a model of SentencePiece: {error!s:.200}") from None
        if tokenizer.specials() != (PAD, UNKNOWN, START, END):
            raise DamagedError(f"{path}: its special tokens are not the first four, as regard has them")
        return tokenizer

    def specials(self) -> tuple[int, int, int, int]:
        return self.processor.pad_id(), self.processor.unk_id(), self.processor.bos_id(), self.processor.eos_id()

    def facts(self) -> dict[str, Any]:
        return {"model": hashlib.sha256(self.proto).hexdigest()}

    def model(self) -> bytes:
        return self.proto

    def tokenize(self, lines: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = self.process(lines, int)
        return ids

    def cut(self, lines: Sequence[str]) -> list[list[bytes]]:
        """A piece is as long as the word it could not spell; bytes spell themselves."""
        both = zip(self.process(lines, int), self.process(lines, str), strict=True)
        return [
            [piece.encode() if token == UNKNOWN else self.spellings[token] for token, piece in zip(*row, strict=True)]
            for row in both
        ]

    def process(self, lines: Sequence[str], kind: type) -> Any:
        """The tokens of each line, as ids (int) or as pieces (str)."""
        if not lines:
            return []
        threads = os.cpu_count() or 1
        try:
            return self.processor.encode(list(lines), out_type=kind, num_threads=threads)
        except (TypeError, UnicodeError):  # half of a surrogate pair somewhere: no UTF-8 can hold it
            plain = [line.encode(errors="replace").decode() for line in lines]
            return self.processor.encode(plain, out_type=kind, num_threads=threads)


class PieceFitter(Fitter):
    """Keeps a sample of the lines."""

    def __init__(self, kind: type[SentencePieceTokenizer], section: Section) -> None:
        self.kind, self.section, self.sample = kind, section, Sample(SAMPLE, LETTERS)

    def add(self, lines: Iterable[str], column: str = "") -> None:
        texts = (line.lower() for line in lines) if self.section.lowercase else lines
        self.sample.add((line[:LONGEST] for line in texts if line.strip()), column)

    def finish(self) -> SentencePieceTokenizer:
        kept, seen = self.sample.lines(), self.sample.seen
        if not kept:
            raise UserError("there is no text to train a tokenizer on")
        tokenizer = self.kind(train_pieces(self.kind.kind, self.section.size, kept), self.section.lowercase)
        tokenizer.trained_on = f"a sample of {len(kept):,} of {seen:,} lines" if len(kept) < seen else None
        return tokenizer


class Drawn:
    """Lines of one column that are kept, with the number that each has drawn."""

    def __init__(self, seed: int) -> None:
        self.chance, self.lines, self.numbers = random.Random(seed), list[str](), array("d")


class Sample:
    """At most `limit` lines of at most so many letters together, column after column, each in order. Each line draws a number
    and is as likely as any other, always the same; whenever they are too many, those above some of the threshold go."""

    def __init__(self, limit: int, letters: int) -> None:
        self.limit, self.letters, self.threshold = limit, letters, 1.0
        self.columns: dict[str, Drawn] = {}
        self.kept = self.total = self.seen = 0

    def add(self, lines: Iterable[str], column: str = "") -> None:
        if column not in self.columns:
            self.columns[column] = Drawn(seed=1 + len(self.columns))
        drawn = self.columns[column]
        for line in lines:
            self.seen += 1
            if (number := drawn.chance.random()) < self.threshold:
                drawn.lines.append(line)
                drawn.numbers.append(number)
                self.kept, self.total = self.kept + 1, self.total + len(line)
            while self.kept > self.limit or (self.total > self.letters and self.kept > 1):
                self.thin_out()

    def thin_out(self) -> None:
        self.threshold *= 15 / 16
        for drawn in self.columns.values():
            both = zip(drawn.lines, drawn.numbers, strict=True)
            drawn.lines = [line for line, number in both if number < self.threshold]
            drawn.numbers = array("d", (number for number in drawn.numbers if number < self.threshold))
        self.kept, self.total = len(self.lines()), sum(map(len, self.lines()))

    def lines(self) -> list[str]:
        return [line for drawn in self.columns.values() for line in drawn.lines]


def train_pieces(kind: str, size: int, lines: list[str]) -> bytes:
    alphabet = len(set().union(*lines))
    writer = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=writer,
            model_type=kind,
            vocab_size=size,
            hard_vocab_limit=False,  # a small text gives a small vocabulary
            character_coverage=1.0 if alphabet <= size // 4 else 0.9995,  # Chinese: the rarest letters are left to bytes
            byte_fallback=size >= BYTES,
            max_sentence_length=4 * LONGEST + 1,
            pad_id=PAD,
            unk_id=UNKNOWN,
            bos_id=START,
            eos_id=END,
            num_threads=2,  # the same everywhere, and so is the result
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).rpartition("] ")[2] or str(error)
        advice = "raise data.tokenizer.size or take data.tokenizer.kind=character or byte"
        raise UserError(f"no {kind} tokenizer of size {size} from this text ({reason}); {advice}") from None
    return writer.getvalue()


class UnigramTokenizer(SentencePieceTokenizer):
    """Kudo 2018: the most likely cut under a unigram model of the pieces."""

    kind = "unigram"


class BytePairTokenizer(SentencePieceTokenizer):
    """Sennrich et al. 2016: the most frequent neighbours are joined, again and again."""

    kind = "bpe"
