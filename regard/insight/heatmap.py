"""Where a model looked, as a value: words, weights, and what every picture of them shares."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from rich.cells import cell_len

JOINER = "\u200d"  # glues emoji together
SIGNS = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {"\n": "↵", "\t": "⇥", "\x7f": "␡"}  # ␀ ␁ ...
BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")  # could turn a page round
UNSEEN = frozenset("\u200b\u2060\ufeff\u00ad")  # have no width: two words would look the same
MARKS = 6  # over and under one letter; more of them would cover the words beside it
END_MARK = "</s>"
GOLD_TOLD = "outlined: true links"
STRONG = 0.6  # from this shade on, digits on the ink are white


class Heatmap(NamedTuple):
    """One picture: a row for each target word, a column for each source word."""

    source: list[str]
    target: list[str]
    weights: Float[np.ndarray, "target source"]
    title: str = ""
    end: Float[np.ndarray, " target"] | None = None  # weights on the end mark of the source, which gets a column of its own
    gold: frozenset[tuple[int, int]] = frozenset()  # true links, (source, target), drawn as outlines
    possible: frozenset[tuple[int, int]] = frozenset()  # those that are not sure, drawn with dashes

    @property
    def whole(self) -> "Heatmap":
        """With the end mark as the last source word: what is looked at there is looked at nowhere else."""
        if self.end is None:
            return self
        weights = np.concatenate([self.weights, np.asarray(self.end)[:, None]], axis=1)
        return self._replace(source=[*self.source, END_MARK], weights=weights, end=None)

    @property
    def peak(self) -> float:
        """The weight drawn strongest: 1, so that pictures can be compared, unless there are larger ones."""
        return max(float(np.nan_to_num(self.weights).max(initial=0.0)), 1.0)

    @property
    def shades(self) -> Float[np.ndarray, "target source"]:
        """How strongly each cell is drawn, from 0 to 1; weights below 0 are drawn as 0."""
        assert self.weights.shape == (len(self.target), len(self.source)), self.weights.shape
        shades: Float[np.ndarray, "target source"] = np.nan_to_num(self.weights).clip(min=0) / self.peak
        return shades


class Sheet(NamedTuple):
    """Several of them as one picture, `across` beside each other: every head of a layer, two models, a run as it learned."""

    heatmaps: Sequence[Heatmap]
    across: int
    title: str = ""


def sheet_of(picture: Heatmap | Sheet) -> Sheet:
    """Ready to be drawn; the end mark of the source is a column of each."""
    sheet = Sheet([picture], 1) if isinstance(picture, Heatmap) else picture
    return sheet._replace(heatmaps=[one.whole for one in sheet.heatmaps])


def printable(text: str) -> str:
    """The text with a visible sign for what a terminal or an XML parser would act on or refuse."""
    if text.isspace():
        text = text.replace(" ", "␣")
    return "".join(map(few_marks, graphemes("".join(map(visible_sign, text)))))


def visible_sign(character: str) -> str:
    code = ord(character)
    if character in SIGNS:
        return SIGNS[character]
    noncharacter = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    refused = unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}
    return "\ufffd" if noncharacter or refused or character in BIDI_CONTROLS | UNSEEN else character


def is_mark(character: str) -> bool:
    """Drawn over, under or through the letter before it; a variation selector is not drawn."""
    return unicodedata.category(character) in {"Mn", "Me"} and not unicodedata.name(character, "").startswith("VARIATION")


def few_marks(letter: str) -> str:
    places = [place for place, character in enumerate(letter) if is_mark(character)]
    return letter if len(places) <= MARKS else letter[: places[MARKS]] + "\ufffd"


def graphemes(text: str) -> list[str]:
    """What a reader counts as letters: marks stay with their letter, joined emoji together, and the two halves of a flag."""
    letters: list[str] = []
    for character in text:
        if letters and (cell_len(character) == 0 or letters[-1].endswith(JOINER) or is_flag(letters[-1], character)):
            letters[-1] += character
        else:
            letters.append(character)
    return letters


def is_flag(*halves: str) -> bool:
    return all("\U0001f1e6" <= half <= "\U0001f1ff" and len(half) == 1 for half in halves)


def abbreviate(text: str, width: int) -> str:
    """The text, or as much of it as fits into `width` terminal columns with a sign that some is missing."""
    if cell_len(text) <= width:
        return text
    letters = graphemes(text)
    while letters and cell_len("".join(letters)) >= width:
        letters.pop()
    return "".join(letters) + "…"


def labels(words: Iterable[str], width: int = 40) -> list[str]:
    return [abbreviate(printable(word), width) for word in words]


def longest(words: Iterable[str]) -> int:
    """The width of the widest word, in terminal columns."""
    return max(map(cell_len, words), default=0)


def digits(weight: float) -> str:
    """A weight in as few characters as a cell holds: .07, .93, 1.0; nothing where there is almost nothing to say."""
    if not weight >= 0.05:
        return ""
    return f"{weight:.2f}".removeprefix("0") if weight < 0.995 else f"{weight:.2g}" if weight >= 1.05 else "1.0"


def tell(source: str, target: str, weight: float) -> str:
    """One cell in words, for tooltips."""
    return f"{target} → {source}: {weight:.3f}"
