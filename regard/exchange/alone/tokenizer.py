"""An exported model's tokenizers without regard: text -> ids -> text. Needs what made them, and nothing else."""

import json
import re
from pathlib import Path

PAD, UNKNOWN, START, END = range(4)
SIGNS = {"\ufffe0": "\ufffe", "\ufffe1": "▁", "\ufffe2": "▅", "\ufffe3": "\0"}  # SentencePiece's own signs, in a text
WRITTEN = {sign: written for written, sign in SIGNS.items()}
SYMBOL = re.compile(r"\S+|[^\S ]|(?<!\S) | (?!\S)")  # words, and white space that is not one space between two of them


class Tokenizer:
    """Reads `tokenizer.json` of a folder and what lies beside it; `encode` gives no marks, `decode` needs none."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.facts = json.loads((self.folder / "tokenizer.json").read_text(encoding="utf-8"))
        self.tokenize, self.detokenize = KINDS[self.facts["kind"]](self)

    def encode(self, text):
        ids = self.tokenize(text.lower() if self.facts["lowercase"] else text)
        return ids[: self.facts.get("longest")]

    def decode(self, ids):
        return self.detokenize([one for one in ids if one not in (PAD, START, END)])


def pieces(tokenizer):
    """SentencePiece models that regard has trained: their ids are its own."""
    import sentencepiece

    of = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer.folder / "pieces.model"))
    exact = not tokenizer.facts["kind"].endswith("_nfkc") and of.normalize(" ﬁ  x ").strip("▁") == "ﬁ▁▁x"
    spellings = [
        bytes([int(of.id_to_piece(one)[3:5], 16)]) if of.is_byte(one) else of.id_to_piece(one).encode()
        for one in range(len(of))
    ]
    spellings[UNKNOWN] = "⁇".encode() if exact else " ⁇ ".encode()

    def tokenize(text):
        return of.encode(re.sub("[\ufffe▁▅\0]", lambda sign: WRITTEN[sign[0]], text) if exact else text)

    def detokenize(ids):
        text = b"".join(spellings[one] for one in ids).decode(errors="replace").replace("▁", " ")
        if not exact:
            return text.strip(" ")
        text = text.removeprefix(" ") if of.normalize("x") == "▁x" else text
        return re.sub("\ufffe[0-3]", lambda sign: SIGNS[sign[0]], text)

    return tokenize, detokenize


def sentencepiece_file(tokenizer):
    """A model that somebody else has trained: what stands for text follows the four marks."""
    import sentencepiece

    of = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer.folder / "pieces.model"))
    theirs = [one for one in range(len(of)) if not (of.is_control(one) or of.is_unknown(one) or of.is_unused(one))]
    ours = {one: number for number, one in enumerate(theirs, start=4)}
    back = [0, of.unk_id(), 0, 0, *theirs]
    return lambda text: [ours.get(one, UNKNOWN) for one in of.encode(text)], lambda ids: of.decode([back[one] for one in ids])


def marian(tokenizer):
    """SentencePiece cuts, and a vocabulary beside it numbers the pieces."""
    import sentencepiece

    of = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer.folder / "pieces.model"))
    pieces = ["", "<unk>", "", "", *tokenizer.facts["vocabulary"]]
    number = {piece: token for token, piece in enumerate(pieces) if token >= 4}

    def tokenize(text):
        code = re.match(">>.*?<<", text, re.DOTALL)
        rest = of.encode(text[code.end() :] if code else text, out_type=str)
        return [number.get(piece, UNKNOWN) for piece in ([code[0], *rest] if code else rest)]

    return tokenize, lambda ids: of.decode_pieces([pieces[one] for one in ids]).replace("▁", " ").strip()


def words(tokenizer):
    symbols = tokenizer.facts["symbols"]
    number = {symbol: token for token, symbol in enumerate(symbols, start=4)}
    names = ["", "⁇", "", "", *symbols]

    def tokenize(text):
        parts = text.split()
        parts = parts if " ".join(parts) == text else SYMBOL.findall(text)
        return [number.get(part, UNKNOWN) for part in parts if part in number or not part.isspace()]

    def detokenize(ids):
        text, after_word = "", False
        for name in (names[one] for one in ids):
            text += " " + name if after_word and not name.isspace() else name
            after_word = not name.isspace()
        return text

    return tokenize, detokenize


def characters(tokenizer):
    number = {symbol: token for token, symbol in enumerate(tokenizer.facts["symbols"], start=4)}
    names = ["", "⁇", "", "", *tokenizer.facts["symbols"]]
    return lambda text: [number.get(one, UNKNOWN) for one in text], lambda ids: "".join(names[one] for one in ids)


def utf8(tokenizer):
    spelled = [b"", "⁇".encode(), b"", b"", *(bytes([byte]) for byte in range(256))]
    return (
        lambda text: [4 + byte for byte in text.encode(errors="replace")],
        lambda ids: b"".join(spelled[one] for one in ids).decode(errors="replace"),
    )


def by_regard(tokenizer):
    """Where the rules are longer than this file."""
    from regard.data.tokenizers import load_tokenizer

    of = load_tokenizer(tokenizer.folder)
    return lambda text: of.encode([text])[0], of.decode


KINDS = {
    **dict.fromkeys(("unigram", "bpe", "unigram_nfkc", "bpe_nfkc"), pieces),
    "sentencepiece": sentencepiece_file,
    "marian": marian, "word": words, "character": characters, "byte": utf8,
    "code": by_regard, "huggingface": by_regard,
}  # fmt: skip
