"""Words and phrases that an output must have: lexically constrained decoding by dynamic beam allocation (Post & Vilar 2018)."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.tokenizers import UNKNOWN, Tokenizer
from regard.decoding.rules.rule import DecodingRule, Request, SearchStep
from regard.errors import UserError

EXACT = 4096  # ways in which phrases may be on their way, up to which the shortest end is found
Progress = tuple[int, ...]  # of each phrase: how many of its tokens are there at last, or all of them once it has come
Phrases = tuple[tuple[int, ...], ...]


class Must(DecodingRule):
    """Every phrase comes somewhere, as the tokens that the tokenizer makes of it. The end mark is forbidden until then, and
    where there is just enough room left for what is missing, nothing else may come: so every search keeps to it, greedy search
    and sampling at the last moment. A beam is told how much of it each word would fulfil (`banks`), and keeps some of all."""

    def __init__(self, phrases: list[Phrases], end: int, device: torch.device) -> None:
        self.end, self.states, self.numbers = end, list[tuple[Phrases, Progress]](), dict[tuple[Phrases, Progress], int]()
        starts = [self.number(each, (0,) * len(each)) for each in phrases]
        self.begun = torch.tensor([[start, 0] for start in starts], device=device)

    @classmethod
    def requested(cls, request: Request) -> "Must | None":
        phrases = [tokens_of(row.decoding.must or (), request.target) for row in request.inputs]
        return cls(phrases, request.end, request.lengths.device) if any(phrases) else None

    def number(self, phrases: Phrases, progress: Progress) -> int:
        key = phrases, progress
        if key not in self.numbers:
            self.numbers[key] = len(self.states)
            self.states.append(key)
        return self.numbers[key]

    def start(self) -> Int[Tensor, "batch 2"]:
        return self.begun

    def apply(self, step: SearchStep, words: Int[Tensor, "rows"], state: Int[Tensor, "rows 2"]) -> tuple[SearchStep, Any]:
        """The state: how far the phrases are, and how many words there are."""
        numbers = [
            self.number(phrases, advance(phrases, progress, word) if written else progress)
            for (phrases, progress), written, word in zip(
                [self.states[number] for number in state[:, 0].tolist()], state[:, 1].tolist(), words.tolist(), strict=True
            )
        ]
        rooms = [len(words)] * len(words) if step.room is None else step.room.tolist()
        width, limited = step.log_probs.shape[1], step.room is not None
        both = [self.judge(number, room if limited else None, width) for number, room in zip(numbers, rooms, strict=True)]
        forbidden, banks = (torch.stack(side).to(state.device) for side in zip(*both, strict=True))
        now = torch.stack([torch.tensor(numbers, device=state.device), state[:, 1] + 1], dim=1)
        return step.forbid(forbidden)._replace(banks=banks), now

    def judge(self, number: int, room: int | None, width: int) -> tuple[Tensor, Tensor]:
        """Of each word: whether it is forbidden, and how many tokens of the phrases are there with it."""
        phrases, progress = self.states[number]
        behind = {token: advance(phrases, progress, token) for phrase in phrases for token in phrase}
        behind[self.end] = progress
        other = advance(phrases, progress, -1)
        forbidden = torch.full((width,), self.too_late(phrases, other, room))
        banks = torch.full((width,), sum(other))
        for token, after in behind.items():
            forbidden[token], banks[token] = self.too_late(phrases, after, room), sum(after)
        if missing(phrases, progress):
            forbidden[self.end] = True
        return forbidden, banks

    @staticmethod
    def too_late(phrases: Phrases, progress: Progress, room: int | None) -> bool:
        return room is not None and missing(phrases, progress) > room - 1


def tokens_of(phrases: Iterable[str], target: Tokenizer) -> Phrases:
    found = tuple(dict.fromkeys(tuple(row) for row in target.encode([*phrases])))
    for phrase, row in zip(phrases, target.encode([*phrases]), strict=True):
        if not row or UNKNOWN in row:
            raise UserError(f"must: the vocabulary cannot spell {phrase!r:.80}")
    return found


def advance(phrases: Phrases, progress: Progress, word: int) -> Progress:
    """One word more (Knuth, Morris and Pratt's automaton of each phrase)."""
    return tuple(
        length if length == len(phrase) else longer(phrase, length, word)
        for phrase, length in zip(phrases, progress, strict=True)
    )


@cache
def longer(phrase: tuple[int, ...], length: int, word: int) -> int:
    """The longest beginning of the phrase that the text ends with, `length` tokens of it and a word later."""
    text = (*phrase[:length], word)
    return next(size for size in range(len(text), -1, -1) if phrase[:size] == text[len(text) - size :])


@cache
def missing(phrases: Phrases, progress: Progress) -> int:
    """The fewest words after which all phrases are there, two of which may share some; of very many, without sharing."""
    left = sum(len(phrase) - length for phrase, length in zip(phrases, progress, strict=True))
    ways = 1
    for phrase in phrases:
        ways *= len(phrase) + 1
    if ways > EXACT:
        return left
    seen, now, count = {progress}, {progress}, 0
    whole = tuple(map(len, phrases))
    tokens = {token for phrase in phrases for token in phrase}
    while whole not in now:
        now = {advance(phrases, one, token) for one in now for token in tokens} - seen
        seen |= now
        count += 1
    return count
