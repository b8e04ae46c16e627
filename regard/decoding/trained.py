"""A trained model in use, whatever its shape: its tokenizers, its device, and the way from texts to what it reads."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor

from regard.data.batching import pad_lists
from regard.data.copies import Copied, copied, extended_size, without_end
from regard.errors import InputError
from regard.models import Model
from regard.models.directory import Bundle
from regard.models.interface import Copies

Result = TypeVar("Result")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Answers(Generic[Result]):
    """One for each input; None for those that the model cannot read, and what is wrong with each of them, by its index."""

    results: list[Result | None]
    problems: dict[int, str]

    def map(self, function: Callable[[Result], Other]) -> "Answers[Other]":
        return Answers([None if one is None else function(one) for one in self.results], self.problems)

    def all(self, what: str) -> list[Result]:
        if self.problems:
            raise InputError(what, self.problems, self.results)
        return [one for one in self.results if one is not None]


class Trained:
    """What every shape of model has in use. `regard.load` returns the class that fits it: regard.decoding.load.IN_USE."""

    def __init__(self, bundle: Bundle, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.model: Model = bundle.model.to(self.device).eval()
        self.source, self.target, self.decoding = bundle.source, bundle.target, bundle.decoding
        self.reading = bundle.reading  # how `align` reads the attention, unless it is told

    @property
    def has_attention(self) -> bool:
        return self.model.has_attention

    def too_long(self, sources: Sequence[str], targets: Sequence[str] | None = None) -> dict[int, str]:
        """The texts, or pairs, that this model has no places for, by their index from 0, and what is wrong with each."""
        if not any(self.model.limits):
            return {}
        return self.problems(self.source.encode(sources), None if targets is None else self.target.encode(targets))

    def problems(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]] | None = None) -> dict[int, str]:
        limits = self.model.limits
        counts = zip(map(len, sources), [0] * len(sources) if targets is None else map(len, targets), strict=True)
        found = ((index, limits.problem(*each)) for index, each in enumerate(counts if any(limits) else ()))
        return {index: problem for index, problem in found if problem is not None}

    def inputs(self, sources: Sequence[Sequence[int]], copies: Copies | None = None) -> tuple[Tensor, Tensor, Copies | None]:
        """A batch of sources as the model reads it: `Model.encode` takes no more."""
        return *self.pad(sources), copies

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Tokens and END, padded as in training, and their lengths."""
        matrix, lengths = pad_lists(rows)
        return torch.from_numpy(matrix).to(self.device), torch.from_numpy(lengths).to(self.device)

    def offers(self, texts: Sequence[str]) -> list[Copied]:
        """What each text offers to be copied; nothing to a model that does not copy."""
        if not self.model.copies_words:
            return [Copied([], [])] * len(texts)
        return [copied(surfaces, self.target) for surfaces in self.source.surfaces(texts)]

    def copies(self, offers: Sequence[Copied]) -> Copies | None:
        """The offers of a batch, for a model that copies."""
        if not self.model.copies_words:
            return None
        words = without_end(pad_lists([offer.ids for offer in offers])[0])
        return Copies(torch.from_numpy(words).to(self.device), extended_size(words, len(self.target)))


def batches(lengths: Sequence[int], budget: int, rows: Sequence[int]) -> Iterator[list[int]]:
    """Of these rows, those of like length together, the longest first."""
    order = sorted(rows, key=lambda row: -lengths[row])
    while order:
        count = max(1, budget // (lengths[order[0]] + 1))
        yield order[:count]
        order = order[count:]
