"""One input or many: what a model in use is given, checked before it is read. One input has one result, a list has a list."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from regard.errors import refuse

Texts = str | Iterable[str]
Pair = tuple[str, str]
Pairs = Pair | Iterable[Pair]


def texts_of(given: object, verb: str, name: str = "texts") -> tuple[list[str], bool]:
    """The texts, and whether it was one alone."""
    if isinstance(given, str):
        return [given], True
    takes = f"{verb} takes one text (a str) or a list of texts"
    texts = several(given, takes)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            refuse(takes, f"{name}[{index}]", text)
    return texts, False


def pairs_of(given: object, verb: str, name: str = "pairs") -> tuple[list[Pair], bool]:
    """The pairs, and whether it was one alone: a tuple of two texts."""
    if isinstance(given, tuple) and is_pair(given):
        return [(given[0], given[1])], True
    takes = f"{verb} takes one pair of texts (a tuple of two str) or a list of pairs"
    pairs = several(given, takes)
    for index, pair in enumerate(pairs):
        if not is_pair(pair):
            refuse(takes, f"{name}[{index}]", pair)
    return [(source, target) for source, target in pairs], False


def is_pair(given: object) -> bool:
    several = isinstance(given, Sequence) and not isinstance(given, str)
    return several and len(given) == 2 and all(isinstance(side, str) for side in given)  # type: ignore[arg-type, attr-defined]


def several(given: object, takes: str) -> list[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        refuse(takes, "this", given)
    return list(given)
