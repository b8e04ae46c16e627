"""How long outputs are: at most, and at least."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.decoding.rules.rule import DecodingRule, Request, SearchStep
from regard.models.limits import Limits
from regard.recipe import Decoding


class MaxLength(DecodingRule):
    """An output has at most so many tokens, its end mark included. One that has not ended by then is cut as it stands: its
    log-probability is that of its words, without an end mark."""

    static = True

    def __init__(self, limits: Int[Tensor, "batch"]) -> None:
        self.limits = limits

    @classmethod
    def requested(cls, request: Request) -> "MaxLength":
        return cls(max_lengths(request.lengths, request.decoding, request.places))

    def start(self) -> Int[Tensor, "batch"]:
        return self.limits

    def apply(self, step: SearchStep, words: Int[Tensor, "rows"], state: Int[Tensor, "rows"]) -> tuple[SearchStep, Any]:
        return step.cut(state <= 1)._replace(room=state), state - 1


class MinLength(DecodingRule):
    """An output has at least so many tokens before its end mark."""

    static = True

    def __init__(self, least: Int[Tensor, "batch"], end: int) -> None:
        self.least, self.end = least, end

    @classmethod
    def requested(cls, request: Request) -> "MinLength | None":
        decoding = request.decoding
        if not decoding.min_length and not decoding.min_ratio:
            return None
        least = ((request.lengths - 1) * (decoding.min_ratio or 0.0)).long()
        return cls(least.clamp(min=decoding.min_length or 0), request.end)

    def start(self) -> Int[Tensor, "batch"]:
        return self.least

    def apply(self, step: SearchStep, words: Int[Tensor, "rows"], state: Int[Tensor, "rows"]) -> tuple[SearchStep, Any]:
        """The state counts the tokens that are missing."""
        ends = torch.arange(step.log_probs.shape[1], device=words.device) == self.end
        step = step.forbid((state > 0)[:, None] & ends)
        return step if step.room is None else step.forbid((state > step.room)[:, None]), state - 1


def max_lengths(lengths: Int[Tensor, "batch"], decoding: Decoding, places: Limits) -> Int[Tensor, "batch"]:
    """How many tokens an output may have, its end mark included; `lengths` count that of the source."""
    most = decoding.max_length if places.target is None else min(decoding.max_length, places.target.places)
    limits = (lengths * decoding.max_ratio + 10).long().clamp(max=most)
    return limits if places.both is None else limits.minimum(places.both.places - lengths)


def limit_met(length: int, decoding: Decoding, places: Limits) -> str:
    """The key that limits the output of a source of this length (its end mark included): what to raise where it was cut."""
    room = {"decoding.max_ratio": int(length * decoding.max_ratio + 10), "decoding.max_length": decoding.max_length}
    if places.target is not None:
        room[places.target.key] = places.target.places
    if places.both is not None:
        room[places.both.key] = places.both.places - length
    return min(room, key=room.__getitem__)
