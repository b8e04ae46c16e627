"""Searches whose tensors keep their shapes: a few steps of all sentences at once, which ask the device nothing."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.data.batching import Batch
from regard.data.tokenizers import END, START, Tokenizer
from regard.decoding.beam import BeamSearch
from regard.decoding.fused import KEPT, FusedBeam, greedily, logits_of
from regard.decoding.greedy import GreedySearch, Place
from regard.decoding.hypothesis import Found
from regard.decoding.ranking import STOPS, Coverage, normaliser
from regard.decoding.rules import RULES, DecodingRule, Request, SearchStepFunction, ruled
from regard.engine.device import DeviceDecoder, device_problem
from regard.errors import UserError
from regard.models import Generator
from regard.nn.kernels.machine import here
from regard.nn.state import tensors_in
from regard.recipe import Decoding, choose


class Given(NamedTuple):
    """What is known of sentences before their first word: a tree of tensors, a row for each."""

    memory: Any
    lengths: Int[Tensor, "batch"]  # of the sources, END included


class Going(NamedTuple):
    """How far their outputs are: a tree of tensors, as many rows for each."""

    progress: Any  # of their search
    place: Int[Tensor, "groups"]  # of the word that comes next

    @property
    def open(self) -> Bool[Tensor, "groups"]:
        """Which are not finished; a sentence is when all its groups are."""
        return self.progress.going  # type: ignore[no-any-return]


class Strides:
    """One model under one set of settings."""

    def __init__(self, model: Generator, target: Tokenizer, settings: Decoding) -> None:
        self.model, self.target, self.settings = model, target, settings
        self.limits = model.limits
        places = self.limits.target
        self.longest = settings.max_length if places is None else min(settings.max_length, places.places)
        normalise = normaliser(settings.length_norm, settings.length_penalty)
        norms = [normalise(length) for length in range(1, self.longest + 2)]
        device = model.decoder.embed.weight.device
        self.norms = torch.tensor(norms, device=device)
        self.parameters = list(model.parameters()) if here(model.decoder.embed.weight) else []
        self.addresses = self.where_they_lie()
        self.fused = self.fused_decoder()
        self.search: Any = GreedySearch(END, normalise) if settings.beam == 1 else self.beam(normalise)

    def fused_decoder(self) -> DeviceDecoder | None:
        """One by our kernels, where this machine has them, nobody asks where it looked, and there are no other rules."""
        decoder: Any = self.model.decoder
        known = {key for key, rule in RULES.items() if rule.static} <= KEPT and self.settings.groups == 1
        fits = here(decoder.embed.weight) and known and not self.settings.coverage_penalty
        return DeviceDecoder(decoder, self.longest) if fits and device_problem(decoder) is None else None

    def serves(self, model: Generator, settings: Decoding) -> bool:
        """Whether it is of this model, whose weights lie where they lay: what is recorded knows their addresses."""
        same = self.model is model and self.settings == settings and (self.fused is None or self.fused.current)
        return same and self.addresses == self.where_they_lie()

    def where_they_lie(self) -> list[tuple[int, torch.dtype]]:
        return [(one.data_ptr(), one.dtype) for one in self.parameters]

    def refresh(self) -> None:
        """What is copied of weights, before sentences are searched."""
        if self.fused is not None:
            self.fused.refresh()

    def beam(self, normalise: Any) -> BeamSearch:
        settings, goes_on = self.settings, choose(STOPS, self.settings.stop, "stop rule")
        width, kind = settings.beam // settings.groups, BeamSearch if self.fused is None else FusedBeam
        return kind(width, END, normalise, goes_on, groups=settings.groups, diversity=settings.diversity)

    def searching(self, given: Given) -> Any:
        penalty, search = self.settings.coverage_penalty, self.search
        coverage = Coverage(penalty, given.memory.visible) if penalty else None
        return type(search)(**{**vars(search), "coverage": coverage})

    def rules(self, given: Given) -> list[DecodingRule]:
        request = Request(self.settings, Batch({}), given.lengths, self.target, self.limits)
        return [rule for kind in RULES.values() if kind.static and (rule := kind.requested(request)) is not None]

    def begin(self, given: Given, room: int) -> Going:
        """Before the first word, with room for so many."""
        if self.fused is None:
            before = self.model.decoder.start_within(given.memory, room)
        else:
            before = self.fused.start(given.memory, room, self.settings.beam > 1)
        _, state = ruled(self.nowhere, before, self.rules(given))
        progress = self.searching(given).begin(state, torch.full_like(given.lengths, START), room)
        return Going(progress, torch.zeros_like(progress.going, dtype=torch.long))

    def __call__(self, given: Given, going: Going, steps: int, room: int) -> Going:
        """So many words more. What is bound to the memory is bound anew, for other sentences may stand in its place."""
        search, (progress, place) = self.searching(given), going
        if self.fused is not None and self.settings.beam == 1:
            return Going(greedily(self.fused.bind(given.memory), progress, place, steps, END, self.known), place)
        step = self.step(given, room)
        for _ in range(steps):
            progress = search.advance(step, progress, Place(place, self.norms[place]))
            place = (place + 1).clamp(max=room)  # behind the last place there is one that nobody reads
        return Going(progress, place)

    @property
    def known(self) -> int:
        """How many of the two rules that kernels keep are asked for."""
        return 1 + bool(self.settings.min_length or self.settings.min_ratio)

    def step(self, given: Given, room: int) -> SearchStepFunction:
        if self.fused is not None:
            return logits_of(self.fused.bind(given.memory), self.known)
        found, _ = ruled(self.model.decoder.stepper_within(given.memory, room), None, self.rules(given))
        return found

    @staticmethod
    def nowhere(words: Tensor, state: Any) -> Any:
        raise AssertionError("a search that has not begun takes no step")

    def read(self, given: Given, going: Going) -> list[list[Found]]:
        found: list[list[Found]] = self.searching(given).read(going.progress)
        return found


def problem(model: Generator, settings: Decoding) -> str | None:
    """Why such a search is not for this model under these settings, if that is known before a step."""
    if not hasattr(getattr(model, "decoder", None), "start_within"):
        kind = type(getattr(model, "decoder", model)).__name__
        return f"{kind} has no State that keeps its shape"
    if model.copies_words:
        return "a model that copies words has another vocabulary for each source"
    # a rule of one's own has no key among the settings: it is asked whenever there is something to search
    asked = [key for key, rule in RULES.items() if not rule.static and getattr(settings, key, rule) is not None]
    return f"{asked[0]} looks at each word as it is written" if asked else None


class Grows(UserError):
    """A State that does not keep its shape."""


def require_shapes(before: Going, after: Going) -> None:
    """Some States grow with every word."""
    shapes = ([one.shape for one in tensors_in(going)] for going in (before, after))
    if next(shapes) != next(shapes):
        raise Grows(
            "decoding.cache=static is for States that keep their shape, and that of this model's decoder grows with every word "
            "(a cell or a connection that attends to its earlier states): take cache=dynamic"
        )


def power_of_two(number: int, least: int = 1) -> int:
    """The next one that is not smaller."""
    found = least
    while found < number:
        found *= 2
    return found


def sizes(limits: Sequence[int], taken: Sequence[int], steps: int, longest: int) -> tuple[int, int]:
    """Of the next stride: how many steps, and how much room outputs have then."""
    left = max(limit - done for limit, done in zip(limits, taken, strict=True))
    steps = min(steps, left)
    return steps, min(power_of_two(max(taken) + steps, 32), longest)
