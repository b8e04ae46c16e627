"""Pieces of words: the SentencePiece tokenizers, trained on a bounded sample of the text."""

import hashlib
import io
import os
import random
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import sentencepiece

from regard.data.tokenizer import END, LARGEST, PAD, SPECIALS, START, UNKNOWN, Fitter, Tokenizer
from regard.data.untrusted import read_plain
from regard.errors import DamagedError, UserError
from regard.recipe import Tokenizer as Section

SAMPLE = 1_000_000  # lines a model is trained on at most
LETTERS = 1 << 23  # characters of all these lines together: training keeps some forty bytes for each
LONGEST = 4_000  # characters of such a line that are looked at
BYTES = 1_000  # vocabularies from this size on spell what they do not know in bytes; smaller ones know every letter of the text
ALONE = "\t\n\r"  # no piece reaches over them; SentencePiece would leave out tabs and what ends a text
# What SentencePiece takes for its own signs is written as a noncharacter and a digit, and so is the noncharacter
ESCAPE = "\ufffe"
RESERVED = {sign: f"{ESCAPE}{number}" for number, sign in enumerate((ESCAPE, "▁", "▅", "\0"))}
SIGNS = {written: sign for sign, written in RESERVED.items()}
TO_ESCAPE, TO_RESTORE = re.compile("|".join(map(re.escape, RESERVED))), re.compile("|".join(SIGNS))
IDENTITY = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True}


def escaped(text: str) -> str:
    return TO_ESCAPE.sub(lambda found: RESERVED[found[0]], text)


def processed(processor: Any, texts: Sequence[str], kind: type) -> Any:
    """The tokens of each text as SentencePiece cuts it, as ids (int) or as pieces (str)."""
    if not texts:
        return []
    threads = os.cpu_count() or 1
    try:
        return processor.encode(list(texts), out_type=kind, num_threads=threads)
    except (TypeError, UnicodeError):  # half of a surrogate pair somewhere: no UTF-8 can hold it
        whole = [text.encode(errors="replace").decode() for text in texts]
        return processor.encode(whole, out_type=kind, num_threads=threads)


class SentencePieceTokenizer(Tokenizer):
    """Pieces of words, found by their statistics (Kudo & Richardson 2018)."""

    blank = "▁"
    trainer: ClassVar[Mapping[str, Any]] = IDENTITY  # how its text is normalised: not at all

    def __init__(self, model: bytes, lowercase: bool = False) -> None:
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.proto = model
        # the file itself tells what it does to spaces and letters: what older versions trained as `unigram` changes both
        self.exact = self.processor.normalize(" ﬁ  x ").strip("▁") == "ﬁ▁▁x"
        self.spaced = self.processor.normalize("x") == "▁x"
        self.unknown = "⁇" if self.exact else " ⁇ "
        ids = range(len(SPECIALS), self.processor.get_piece_size())
        super().__init__([self.spelling(token) for token in ids], lowercase)

    def spelling(self, token: int) -> bytes:
        piece: str = self.processor.id_to_piece(token)
        if self.processor.is_byte(token):
            return bytes([int(piece[3:5], 16)])
        return piece.encode()

    @classmethod
    def fitter(cls, section: Section) -> Fitter:
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

    def plain(self, spelled: str) -> str:
        if not self.exact:
            return spelled.replace(self.blank, " ").strip(" ")
        return TO_RESTORE.sub(lambda found: SIGNS[found[0]], super().plain(spelled))

    def added(self, spelling: bytes, bare: bool) -> bytes:
        added = super().added(spelling, bare)
        if ESCAPE.encode() not in added:
            return added
        return TO_RESTORE.sub(lambda found: SIGNS[found[0]], added.decode(errors="surrogateescape")).encode(
            errors="surrogateescape"
        )

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
        return processed(self.processor, [escaped(line) for line in lines] if self.exact else lines, kind)


class PieceFitter(Fitter):
    """Keeps a sample of the lines, and of a small vocabulary's text every letter."""

    def __init__(self, kind: type[SentencePieceTokenizer], section: Section) -> None:
        refuse_counts(section)
        self.kind, self.section, self.sample = kind, section, Sample(SAMPLE, LETTERS)
        self.alphabet = set[str]()

    def add(self, lines: Iterable[str], column: str = "") -> None:
        texts = [line.lower() for line in lines] if self.section.lowercase else list(lines)
        if self.section.size < BYTES:
            self.alphabet.update(*texts)
        self.sample.add((line[:LONGEST] for line in texts if line.strip()), column)

    def finish(self) -> SentencePieceTokenizer:
        kept, seen = self.sample.lines(), self.sample.seen
        if not kept:
            raise UserError("there is no text to train a tokenizer on")
        # letters of lines that are not in the sample, and those of `<s>` and its kin, which SentencePiece's trainer passes over
        more = self.alphabet.difference(*kept).union(*(name for name in SPECIALS if any(name in line for line in kept)))
        tokenizer = self.kind(train_pieces(self.kind, self.section.size, [*kept, *sorted(more)]), self.section.lowercase)
        tokenizer.trained_on = f"a sample of {len(kept):,} of {seen:,} lines" if len(kept) < seen else None
        return tokenizer


def refuse_counts(section: Section) -> None:
    if section.min_count > 1:
        told = "counts whole symbols: it goes with data.tokenizer.kind=word, code or character"
        what = section.kind if section.file is None else "a file"
        raise UserError(f"data.tokenizer.min_count={section.min_count} {told}, not {what}")


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


def train_pieces(kind: type[SentencePieceTokenizer], size: int, lines: list[str]) -> bytes:
    exact = kind.trainer is IDENTITY
    alphabet, algorithm = set[str]().union(*lines), kind.kind.removesuffix("_nfkc")
    writer = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=map(escaped, lines) if exact else iter(lines),
            model_writer=writer,
            model_type=algorithm,
            vocab_size=size,
            hard_vocab_limit=False,  # a small text gives a small vocabulary
            # Chinese: the rarest letters are left to bytes, where there are any
            character_coverage=0.9995 if len(alphabet) > size // 4 and (size >= BYTES or not exact) else 1.0,
            byte_fallback=size >= BYTES,
            user_defined_symbols=[letter for letter in ALONE if exact and letter in alphabet],
            max_sentence_length=4 * LONGEST + 1,
            pad_id=PAD,
            unk_id=UNKNOWN,
            bos_id=START,
            eos_id=END,
            num_threads=2,  # the same everywhere, and so is the result
            minloglevel=2,
            **kind.trainer,
        )
    except RuntimeError as error:
        reason = str(error).rpartition("] ")[2] or str(error)
        advice = "raise data.tokenizer.size or take data.tokenizer.kind=character or byte"
        raise UserError(f"no {kind.kind} tokenizer of size {size} from this text ({reason}); {advice}") from None
    return writer.getvalue()


class UnigramTokenizer(SentencePieceTokenizer):
    """Kudo 2018: the most likely cut under a unigram model of the pieces."""

    kind = "unigram"


class BytePairTokenizer(SentencePieceTokenizer):
    """Sennrich et al. 2016: the most frequent neighbours are joined, again and again."""

    kind = "bpe"


class UnigramNFKCTokenizer(UnigramTokenizer):
    """Text is normalised before it is cut (Unicode's NFKC), and runs of spaces become one: the text does not come back."""

    kind, trainer = "unigram_nfkc", {}


class BytePairNFKCTokenizer(BytePairTokenizer):
    """The same for pairs of bytes."""

    kind, trainer = "bpe_nfkc", {}
