"""Tokenizers of Marian models as Hugging Face keeps them: SentencePiece cuts, a vocabulary beside it numbers the pieces."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from regard.data.subwords import processed
from regard.data.tokenizer import SPECIALS, UNKNOWN
from regard.data.tokenizer_files import SentencePieceFile, content_of

LANGUAGE = re.compile(">>.*?<<", re.DOTALL)  # before a text: what it is to be translated into
BYTE = re.compile("<0x[0-9A-F]{2}>")


class MarianTokenizer(SentencePieceFile):
    """Both sides share the vocabulary, each has its own model. A piece that the vocabulary lacks is unknown."""

    kind, library, unknown = "marian", "SentencePiece", " ⁇ "

    def __init__(self, content: bytes, vocabulary: Sequence[str], lowercase: bool = False) -> None:
        """`vocabulary`: the pieces that follow our four specials."""
        self.vocabulary = list(vocabulary)
        if len(set(self.vocabulary)) < len(self.vocabulary):
            raise ValueError("it has a piece twice")
        super().__init__(content, lowercase)
        self.of_piece = {piece: token for token, piece in enumerate(self.vocabulary, start=len(SPECIALS))}

    def open(self) -> list[int]:
        """Places in the vocabulary."""
        self.processor = sentencepiece.SentencePieceProcessor(model_proto=self.content)
        if not len(self.processor):
            raise ValueError("it is empty")
        self.spaced = self.processor.normalize("x") == "▁x"
        return list(range(len(self.vocabulary)))

    @classmethod
    def restore(cls, facts: dict[str, Any], directory: Path) -> "MarianTokenizer":
        vocabulary = facts["vocabulary"]
        if not isinstance(vocabulary, list) or not all(isinstance(piece, str) for piece in vocabulary):
            raise TypeError("its vocabulary is no list of pieces")
        return cls(content_of(cls, facts, directory), vocabulary, bool(facts["lowercase"]))

    def facts(self) -> dict[str, Any]:
        return {**super().facts(), "vocabulary": self.vocabulary}

    @property
    def words_digest(self) -> str:
        """Two models, one vocabulary: a token is the same piece on both sides."""
        return "\n".join(self.vocabulary)

    def spelling(self, token: int) -> bytes:
        piece = self.vocabulary[token]
        return bytes([int(piece[3:5], 16)]) if BYTE.fullmatch(piece) else piece.replace("▁", " ").encode(errors="replace")

    @property
    def their_unknown(self) -> int:
        return -1

    def join(self, tokens: list[int]) -> str:
        pieces = ["<unk>" if token < 0 else self.vocabulary[token] for token in tokens]
        return str(self.processor.decode_pieces(pieces)).replace("▁", " ").strip()

    def in_pieces(self, lines: Sequence[str]) -> list[list[str]]:
        codes = [found[0] if (found := LANGUAGE.match(line)) else "" for line in lines]
        texts = [line.removeprefix(code) for line, code in zip(lines, codes, strict=True)]
        rows = processed(self.processor, texts, str)
        return [[code, *row] if code else list(row) for code, row in zip(codes, rows, strict=True)]

    def tokenize(self, lines: Sequence[str]) -> list[list[int]]:
        return [[self.of_piece.get(piece, UNKNOWN) for piece in row] for row in self.in_pieces(lines)]

    def cut(self, lines: Sequence[str]) -> list[list[bytes]]:
        def surface(piece: str) -> bytes:
            return self.spellings[token] if (token := self.of_piece.get(piece)) else piece.replace("▁", " ").encode()

        return [[surface(piece) for piece in row] for row in self.in_pieces(lines)]
