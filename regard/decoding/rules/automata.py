"""Which texts are allowed, told character by character. A state is any hashable value; None: no text that goes on so is."""

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Sequence
from typing import Any

from regard.data.scripts import UNSPACED

State = Hashable
WORD = re.compile(r"\w")


class Automaton(ABC):
    start: State

    @abstractmethod
    def step(self, state: Any, character: str) -> State | None: ...

    @abstractmethod
    def accepts(self, state: Any) -> bool:
        """Whether a text may end here."""


class Beginning(Automaton):
    """Texts that begin so. The state counts the characters that are there."""

    def __init__(self, prefix: str) -> None:
        self.prefix, self.start = prefix, 0

    def step(self, state: int, character: str) -> int | None:
        if state == len(self.prefix):
            return state
        return state + 1 if self.prefix[state] == character else None

    def accepts(self, state: int) -> bool:
        return state == len(self.prefix)


class Without(Automaton):
    """Texts in which none of these phrases stands as whole words; in scripts without spaces, in which none stands at all."""

    def __init__(self, phrases: Sequence[str]) -> None:
        self.phrases = phrases
        # whether the character before came from a word, the phrases that are on their way, whether one has just ended
        self.start = False, frozenset[tuple[int, int]](), False

    def step(self, state: tuple[bool, frozenset[tuple[int, int]], bool], character: str) -> State | None:
        within, going, ended = state
        if ended and not in_word(character):
            return None
        begun = {(number, 0) for number, phrase in enumerate(self.phrases) if not (within and in_word(phrase[0]))}
        grown = [
            (self.phrases[number], number, at + 1) for number, at in going | begun if self.phrases[number][at] == character
        ]
        whole = [phrase for phrase, _, at in grown if at == len(phrase)]
        if not all(in_word(phrase[-1]) for phrase in whole):
            return None
        return in_word(character), frozenset((number, at) for phrase, number, at in grown if at < len(phrase)), bool(whole)

    def accepts(self, state: tuple[bool, frozenset[tuple[int, int]], bool]) -> bool:
        return not state[2]


def in_word(character: str) -> bool:
    """Whether a word may go on before and behind this character."""
    return WORD.match(character) is not None and UNSPACED.match(character) is None


class OnlyWords(Automaton):
    """Texts of no words but these; white space stands between words. The state is what there is of the word."""

    def __init__(self, words: Collection[str]) -> None:
        self.words, self.start = {"", *words}, ""
        self.beginnings = {word[:length] for word in self.words for length in range(len(word) + 1)}

    def step(self, state: str, character: str) -> str | None:
        if character.isspace():
            return "" if state in self.words else None
        return state + character if state + character in self.beginnings else None

    def accepts(self, state: str) -> bool:
        return state in self.words
