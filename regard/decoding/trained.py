"""A trained model in use, whatever its shape: its fields, its device, and the way from raw values to what it reads."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from regard.data.batching import Batch, Column, column_of, pad_lists
from regard.data.copies import Copied, copied, extended_size, without_end
from regard.data.fields import Field, Problems, Text, tokenizer_of
from regard.data.tokenizers import Tokenizer
from regard.errors import InputError, UserError, refuse
from regard.insight.look import Look
from regard.models.device import on_device
from regard.models.directory import Bundle
from regard.recipe import Decoding, parse

Result = TypeVar("Result")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Answers(Generic[Result]):
    """One for each input; None for those that the model cannot read, and what is wrong with each of them, by its index."""

    results: list[Result | None]
    problems: dict[int, str]
    cuts: dict[int, str] = field(default_factory=dict)  # the key whose limit cut an output, by its index

    def map(self, function: Callable[[Result], Other]) -> "Answers[Other]":
        return Answers([None if one is None else function(one) for one in self.results], self.problems, self.cuts)

    def all(self, what: str) -> list[Result]:
        if self.problems:
            raise InputError(what, self.problems, self.results)
        return [one for one in self.results if one is not None]


class Trained:
    """What every shape of model has in use. `regard.load` returns the class that fits it: regard.decoding.load.IN_USE."""

    does: ClassVar[str] = "does something of its own"  # in words
    usage: ClassVar[str] = 'regard.load("MODEL")'
    further: ClassVar[tuple[tuple[str, str], ...]] = (("regard evaluate MODEL", "score it"),)  # what else to type, and why
    gives: ClassVar[tuple[str, ...]] = ()  # what metrics may need of it: entries of SOURCES in `evaluation/evaluate.py`

    def __init__(self, bundle: Bundle, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.model: Any = bundle.model.to(self.device).eval()
        self.fields, self.decoding = bundle.fields, bundle.decoding
        self.reading = bundle.reading  # how `align` reads the attention, unless it is told
        self.config, self.path = bundle.config, bundle.path

    def release(self) -> None:
        """Gives back memory that was kept to be faster the next time."""

    def __repr__(self) -> str:
        where = "" if self.path is None else f" from {self.path}"
        columns = ", ".join(f"{name}: {self.holds(field)}" for name, field in self.fields.items())
        size = sum(parameter.numel() for parameter in self.model.parameters())
        parts = [f"  {name}: {told(section)}\n" for name, section in self.config.items() if isinstance(section, Mapping)]
        kind = self.config.get("kind", type(self.model).__name__)
        return f"{type(self).__name__}{where}: {kind}\n{''.join(parts)}  {columns}\n  {size:,} parameters on {self.device}"

    def holds(self, field: Field) -> str:
        return f"{field.tokenizer.kind} of {len(field.tokenizer):,}" if isinstance(field, Text) else field.shape.told

    @property
    def source(self) -> Tokenizer:
        return tokenizer_of(self.fields["source"])

    @property
    def target(self) -> Tokenizer:
        return tokenizer_of(self.fields["target"])

    @property
    def has_attention(self) -> bool:
        found: bool = self.model.has_attention
        return found

    def look(self, text: str, output: str | None = None, tokens: bool | None = None, maps: bool = True, **changes: Any) -> Look:
        """Where it looked, if it has attention to look with."""
        raise UserError(f"this model {self.does}; where it looked is not shown")

    @property
    def name(self) -> str:
        """What pictures call it: its run, and the step if it is a checkpoint."""
        if self.path is None:
            return type(self).__name__
        step = re.fullmatch(r"step-0*(\d+)", self.path.name)
        return str(self.path) if step is None else f"{self.path.parent.parent}, step {step[1]}"

    def settings(self, decoding: Decoding | None = None, **changes: Any) -> Decoding:
        """Those given, or the model's own, with some fields changed; a wrong one is refused as in a recipe."""
        base = self.decoding if decoding is None else decoding
        if not isinstance(base, Decoding):
            raise UserError(f"settings are one regard.recipe.Decoding or keywords such as beam=5 (given: {base!r})")
        return parse(Decoding, {**base.model_dump(), **changes}, "decoding")

    def encoded(self, column: str, values: Sequence[str]) -> tuple[list[Any], Problems]:
        """The positions of each value, and what is wrong with some."""
        return self.fields[column].encode(values)

    def too_long(self, sources: Sequence[str], targets: Sequence[str] | None = None) -> dict[int, str]:
        """The inputs, or pairs, that this model has no places for, by their index from 0, and what is wrong with each."""
        if not any(self.model.limits):
            return {}
        read, _ = self.encoded("source", sources)
        return self.problems(read, None if targets is None else self.target.encode(targets))

    def rows_too_long(self, rows: Sequence[Sequence[str]]) -> dict[int, str]:
        """The same of whole rows: a value for each column."""
        texts = {name: [row[place] for row in rows] for place, name in enumerate(self.fields)}
        if not any(self.model.limits):
            return {}
        read = {name: self.encoded(name, values)[0] for name, values in texts.items()}
        return self.problems(read.get("source", [[]] * len(rows)), read.get("target"))

    def problems(self, sources: Sequence[Any], targets: Sequence[Sequence[int]] | None = None) -> dict[int, str]:
        limits = self.model.limits
        counts = zip(map(len, sources), [0] * len(sources) if targets is None else map(len, targets), strict=True)
        found = ((index, limits.problem(*each)) for index, each in enumerate(counts if any(limits) else ()))
        return {index: problem for index, problem in found if problem is not None}

    def inputs(self, sources: Sequence[Any], copies: Column | None = None) -> Batch:
        """A batch of sources as the model reads it."""
        read = on_device(Batch({"source": column_of(self.fields["source"], sources)}), self.device)
        return read if copies is None else Batch({**read.columns, "copies": copies})

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Tokens and END, padded as in training, and their lengths."""
        matrix, lengths = pad_lists(rows)
        return torch.from_numpy(matrix).to(self.device), torch.from_numpy(lengths).to(self.device)

    def offers(self, texts: Sequence[str]) -> list[Copied]:
        """What each text offers to be copied; nothing to a model that does not copy."""
        if not self.model.copies_words:
            return [Copied([], [])] * len(texts)
        return [copied(surfaces, self.target) for surfaces in self.source.surfaces(texts)]

    def copies(self, offers: Sequence[Copied]) -> Column | None:
        """The offers of a batch, for a model that copies."""
        if not self.model.copies_words:
            return None
        words = without_end(pad_lists([offer.ids for offer in offers])[0])
        return Column(torch.from_numpy(words).to(self.device), size=extended_size(words, len(self.target)))


def check_look(text: object, output: object) -> None:
    for name, given in {"text": text, "output": "" if output is None else output}.items():
        if not isinstance(given, str):
            refuse("look takes one text (a str), and one output if it is not to be the model's own", name, given)


def told(section: Mapping[str, Any]) -> str:
    """A section of a model's configuration in one line: its kind, then its names and numbers."""
    plain = ((key, value) for key, value in section.items() if isinstance(value, int | float | str) and key != "kind")
    attention = section.get("attention")
    looks = [f"attention {attention['score']}"] if isinstance(attention, Mapping) and "score" in attention else []
    return ", ".join([str(section.get("kind", "")), *(f"{key}={value}" for key, value in plain if value), *looks])


def batches(lengths: Sequence[int], budget: int, rows: Sequence[int]) -> Iterator[list[int]]:
    """Of these rows, those of like length together, the longest first."""
    order = sorted(rows, key=lambda row: -lengths[row])
    while order:
        count = max(1, budget // (lengths[order[0]] + 1))
        yield order[:count]
        order = order[count:]
