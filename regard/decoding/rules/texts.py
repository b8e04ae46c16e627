"""Rules about the text of an output, however tokens cut it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from regard.decoding.rules.automata import Automaton, Beginning, OnlyWords, Without
from regard.decoding.rules.lifted import Lifted, Place
from regard.decoding.rules.regex import Pattern
from regard.decoding.rules.rule import DecodingRule, Request, SearchStep
from regard.errors import UserError

FREE = -1  # the state of an output that this rule does not ask anything of


class TextRule(DecodingRule):
    """The State is the number of a place among those that some output has come to. FREE is that of those that ask nothing."""

    key: ClassVar[str]
    automaton: ClassVar[Any]  # what an input asks for -> Automaton

    def __init__(self, lifted: Sequence[Lifted | None], device: torch.device) -> None:
        self.places, self.numbers = list[tuple[Lifted, Place]](), dict[tuple[Lifted, Place], int]()
        starts = [FREE if one is None else self.number(one, Place(one.automaton.start)) for one in lifted]
        self.begun = torch.tensor([[start, 0] for start in starts], device=device)

    @classmethod
    def requested(cls, request: Request) -> "TextRule | None":
        asked = [(getattr(row.decoding, cls.key), tuple(row.extra)) for row in request.inputs]
        automata = {value: cls.automaton(value) for value, _ in asked if value is not None}
        if not automata:
            return None
        lifted = {one: Lifted(automata[one[0]], request.target, one[1]) for one in asked if one[0] is not None}
        return cls([lifted.get(one) for one in asked], request.lengths.device)

    def number(self, lifted: Lifted, place: Place) -> int:
        key = lifted, place
        if key not in self.numbers:
            self.numbers[key] = len(self.places)
            self.places.append(key)
        return self.numbers[key]

    def start(self) -> Int[Tensor, "batch 2"]:
        return self.begun

    def apply(self, step: SearchStep, words: Int[Tensor, "rows"], state: Int[Tensor, "rows 2"]) -> tuple[SearchStep, Any]:
        """The state: where an output is, and how many words it has."""
        numbers = [
            place if place == FREE or not written else self.behind(place, word)
            for (place, written), word in zip(state.tolist(), words.tolist(), strict=True)
        ]
        last = [False] * len(words) if step.room is None else (step.room <= 1).tolist()
        width = step.log_probs.shape[1]
        masks = torch.stack([self.forbidden(*each, width) for each in zip(numbers, last, strict=True)])
        places = torch.tensor(numbers, device=state.device)
        return step.forbid(masks.to(state.device)), torch.stack([places, state[:, 1] + 1], dim=1)

    def behind(self, number: int, word: int) -> int:
        """Where a word leads; hypotheses that are closed, or impossible, go on as they like."""
        lifted, place = self.places[number]
        found = lifted.next(place).get(word)
        return FREE if found is None else self.number(lifted, found)

    def forbidden(self, number: int, last: bool, width: int) -> Tensor:
        if number == FREE:
            return torch.zeros(width, dtype=torch.bool)
        lifted, place = self.places[number]
        mask = lifted.forbidden(place, last)
        return functional.pad(mask, (0, width - len(mask)), value=True)


class Prefix(TextRule):
    """An output begins with a given text."""

    key, automaton = "prefix", Beginning


class Ban(TextRule):
    """An output has none of these words and phrases, whatever pieces would spell them."""

    key, automaton = "ban", Without


class MatchPattern(TextRule):
    """An output matches a regular expression as a whole."""

    key, automaton = "pattern", Pattern


class OnlyVocabulary(TextRule):
    """An output has only words of a file, which are separated by white space there."""

    key = "only_words"

    @staticmethod
    def automaton(value: Path) -> Automaton:
        try:
            return OnlyWords(value.read_text(encoding="utf-8").split())
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
            raise UserError(f"decoding.only_words: cannot read {value}: {why}") from None
