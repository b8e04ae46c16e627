"""Several models that write one text: at every step, one distribution of what each of them says."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batching import Batch, Column, column_of
from regard.data.fields import Problems, Text
from regard.decoding.generator import TrainedGenerator
from regard.decoding.language import TrainedLanguageModel
from regard.decoding.trained import Trained
from regard.errors import UserError
from regard.models.device import on_device
from regard.models.directory import Bundle
from regard.models.generator import Generator, Words
from regard.models.interface import Memory, Step, StepFunction, Steps
from regard.models.limits import Limits, smallest
from regard.tables import choose

LogProbs = Float[Tensor, "models *any vocabulary"]


def mean(log_probs: LogProbs, weights: Float[Tensor, "models *one"]) -> Float[Tensor, "*any vocabulary"]:
    """log Σ w p / Σ w"""
    return (log_probs + (weights / weights.sum()).log()).logsumexp(dim=0)


def log_mean(log_probs: LogProbs, weights: Float[Tensor, "models *one"]) -> Float[Tensor, "*any vocabulary"]:
    """Σ w log p / Σ w, normalised"""
    return (log_probs * (weights / weights.sum())).sum(dim=0).log_softmax(dim=-1)


def product(log_probs: LogProbs, weights: Float[Tensor, "models *one"]) -> Float[Tensor, "*any vocabulary"]:
    """Σ w log p, normalised: shallow fusion (Gulcehre et al. 2015), where one of them is a language model"""
    return (log_probs * weights).sum(dim=0).log_softmax(dim=-1)


COMBINATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"mean": mean, "log_mean": log_mean, "product": product}


class Memories(NamedTuple):
    """What each model remembers of the source."""

    each: tuple[Memory, ...]
    visible: Bool[Tensor, "batch source"]


class Ensemble(Generator):
    """One model for every search. Its State is the tuple of theirs."""

    def __init__(self, parts: Sequence[Trained], weights: Sequence[float], combine: str) -> None:
        super().__init__()
        self.models = nn.ModuleList(part.model for part in parts)
        self.members, self.combine = parts, choose(COMBINATIONS, combine, "combination of models")
        self.weights = torch.tensor(weights, device=parts[0].device)

    has_attention = draws_attention = False

    @property
    def copies_words(self) -> bool:  # type: ignore[override]
        return all(part.model.copies_words for part in self.members)

    @property
    def vocabulary(self) -> int:
        return len(self.members[0].target)

    @property
    def limits(self) -> Limits:
        each = [part.model.limits for part in self.members]
        return Limits(*(smallest(*(getattr(limits, side) for limits in each)) for side in ("source", "target")))

    def together(self, logits: Sequence[Tensor]) -> Tensor:
        log_probs = torch.stack([one.float().log_softmax(dim=-1) for one in logits])
        return self.combine(log_probs, self.weights.view(-1, *[1] * (log_probs.dim() - 1)))

    def encode(self, batch: Batch) -> Memories:  # type: ignore[override]
        rows = len(batch["source"].values)
        each = (
            part.model.nothing(rows) if isinstance(part, TrainedLanguageModel) else writer(part).encode(own(batch, number))
            for number, part in enumerate(self.members)
        )
        memories = tuple(each)
        return Memories(memories, memories[0].visible)

    def start(self, memory: Memories) -> tuple[StepFunction, Any]:  # type: ignore[override]
        started = [writer(part).start(one) for part, one in zip(self.members, memory.each, strict=True)]

        def step(words: Int[Tensor, "rows"], states: Any) -> Step:
            found = [one(words, state) for (one, _), state in zip(started, states, strict=True)]
            return Step(self.together([each.logits for each in found]), None, tuple(each.state for each in found))

        return step, tuple(state for _, state in started)

    def teacher_forced(self, batch: Batch, words: Words, return_weights: bool = False) -> Steps:
        each = (
            part.model.logits(part.model.teacher_forced(own(batch, number), words)) for number, part in enumerate(self.members)
        )
        return Steps(self.together([*each]))

    def logits(self, steps: Steps) -> Float[Tensor, "batch target vocabulary"]:
        return steps.outputs


def writer(part: Trained) -> Generator:
    """What steps for it: its model, or what an engine has made of it."""
    found: Generator = getattr(part, "writer", part.model)
    return found


def own(batch: Batch, number: int) -> Batch:
    """The batch as one of the models reads it; a language model reads nothing."""
    columns = {"source": batch.get(name_of(number)), "copies": batch.get("copies")}
    return Batch({name: column for name, column in columns.items() if column is not None})


def name_of(number: int) -> str:
    return f"source {number}" if number else "source"


class Read(list[int]):
    """A source as the first model reads it, and as each does; of a language model, nothing."""

    def __init__(self, each: Sequence[list[int]]) -> None:
        super().__init__(each[0])
        self.each = each


class TrainedEnsemble(TrainedGenerator):
    """generate, search, sample; score. Each model cuts the source into tokens of its own; the target's are the same."""

    gives = ("outputs", "likelihood", "text likelihood")  # type: ignore[assignment]
    members: Sequence[Trained]

    def __init__(self, parts: Sequence[Trained], weights: Sequence[float], combine: str) -> None:
        first, self.members = parts[0], parts
        super().__init__(Bundle(Ensemble(parts, weights, combine), first.fields, first.decoding), first.device)

    def encoded(self, column: str, values: Sequence[str]) -> tuple[list[Any], Problems]:
        if column != "source":
            return super().encoded(column, values)
        nothing: tuple[list[Any], Problems] = [[]] * len(values), {}
        read = [part.encoded(column, values) if column in part.fields else nothing for part in self.members]
        problems = {row: problem for _, found in read[::-1] for row, problem in found.items()}
        return [Read(each) for each in zip(*(rows for rows, _ in read), strict=True)], problems

    def problems(self, sources: Sequence[Any], targets: Sequence[Sequence[int]] | None = None) -> dict[int, str]:
        each = (part.problems([one.each[number] for one in sources], targets) for number, part in enumerate(self.members))
        return {row: problem for found in each for row, problem in found.items()}

    def inputs(self, sources: Sequence[Any], copies: Column | None = None) -> Batch:
        columns = {
            name_of(number): column_of(part.fields["source"], [one.each[number] for one in sources])
            for number, part in enumerate(self.members)
            if "source" in part.fields
        }
        read = on_device(Batch(columns), self.device)
        return read if copies is None else Batch({**read.columns, "copies": copies})


def ensemble(models: Sequence[Trained], weights: Sequence[float] | None = None, combine: str = "mean") -> TrainedEnsemble:
    """Models of any shape that write the same vocabulary, as one. `combine`: an entry of COMBINATIONS, by which `weights`, one
    for each model, count. A language model may be among them, behind the first."""
    parts = list(models)
    counts = [1.0] * len(parts) if weights is None else [float(weight) for weight in weights]
    if not parts or len(counts) != len(parts) or not all(0 < weight < float("inf") for weight in counts):
        raise UserError(f"an ensemble takes models and a positive weight for each, not {len(parts)} and {counts}")
    for number, part in enumerate(parts, start=1):
        refuse(part, number, parts[0])
    return TrainedEnsemble(parts, counts, combine)


def refuse(part: Trained, number: int, first: Trained) -> None:
    """What cannot write together with the first."""
    told = f"model {number} of the ensemble{'' if part.path is None else f' ({part.path})'}"
    if not isinstance(part, TrainedGenerator | TrainedLanguageModel) or (
        number == 1 and not isinstance(part, TrainedGenerator)
    ):
        raise UserError(f"{told} {part.does}; ensembles are of models that write outputs, and of language models behind them")
    if isinstance(part, TrainedGenerator) and not isinstance(part.fields["source"], Text):
        raise UserError(f"{told} reads no text; ensembles are of models that do")
    if part.model.copies_words != first.model.copies_words:
        which = (
            "copies words of the source and the first does not"
            if part.model.copies_words
            else "copies no words, the first does"
        )
        raise UserError(f"{told} {which}: either all copy, or none")
    if part.model.copies_words and part.fields["source"].digest != first.fields["source"].digest:
        raise UserError(
            f"{told} cuts the source into other words to copy than the first: train it with the first one's tokenizer"
        )
    if part.model.limits.both is not None:
        raise UserError(f"{told} has so many places for source and target together, which no other model shares")
    if isinstance(part, TrainedLanguageModel) and part.lines_go_on:
        raise UserError(f"{told} goes on from line to line; train it on lines (`model.window: null`)")
    if part.target.spellings != first.target.spellings:
        sizes = f"{len(part.target):,} tokens beside {len(first.target):,}"
        raise UserError(f"{told} writes another vocabulary than the first ({sizes}): train it with the first one's tokenizer")
    if part.device != first.device:
        raise UserError(f"{told} is on {part.device}, the first on {first.device}: load all on one device")
