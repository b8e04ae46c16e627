"""What a step of training costs: parameters and operations by part, and the memory it takes."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from regard.data.batching import reading
from regard.models import Generator, build, configure
from regard.nn.cross_entropy import CHUNK
from regard.planning.outline import Drawing, kept, watch
from regard.planning.parts import parameters, parts
from regard.planning import paths  # noqa: F401 - what kernels do with outlines

PRECISIONS = {"float32": 4, "bfloat16": 2}  # bytes a number that is computed with
FULL = 4  # bytes a number of weights, gradients and moments, whatever the precision
ROWS = 1, 3  # sentences of the two passes from which everything is read off: all of it grows by so much a sentence


class Lengths(NamedTuple):
    """Tokens of a pair in the mean, end marks included."""

    source: int = 25
    target: int = 25

    def rows(self, batch_tokens: int) -> int:
        """Pairs of a batch of so many tokens on its longer side."""
        return max(1, batch_tokens // max(self))


class Passed(NamedTuple):
    """What one forward pass did and left."""

    operations: Mapping[str, int]  # forward, by part
    bytes: int  # kept for the way back


class Cost(NamedTuple):
    """Of a model at given lengths; `operations` are those of one target token, forward."""

    lengths: Lengths
    vocabulary: int
    parameters: Mapping[str, int]
    operations: Mapping[str, float]
    fixed: Mapping[str, int]  # bytes kept of weights alone, by precision
    each: Mapping[str, int]  # bytes kept a sentence, by precision

    @property
    def size(self) -> int:
        return sum(self.parameters.values())

    @property
    def forward(self) -> float:
        return sum(self.operations.values())

    @property
    def training(self) -> float:
        """There and back: a product has two on the way back, one for each of its factors."""
        return 3 * self.forward


def cost_of(section: Mapping[str, Any], vocabulary: int, lengths: Lengths, device: str = "cuda") -> Cost:
    """Of a recipe's `model` section, by the paths that the device takes; nothing of its size is allocated."""
    with warnings.catch_warnings(), Drawing(device) as drawing:
        warnings.simplefilter("ignore")  # of slow paths: nothing is computed
        model = drawn(drawing, section, vocabulary)
        passes = {kind: [passed(drawing, model, rows, lengths, kind) for rows in ROWS] for kind in PRECISIONS}
        sizes = parameters(model)
    few, more = passes["float32"]
    gap = (ROWS[1] - ROWS[0]) * lengths.target
    operations = {part: (more.operations[part] - few.operations[part]) / gap for part in more.operations}
    each = {name: (many.bytes - one.bytes) // (ROWS[1] - ROWS[0]) for name, (one, many) in passes.items()}
    fixed = {name: one.bytes - ROWS[0] * each[name] for name, (one, _) in passes.items()}
    return Cost(lengths, vocabulary, sizes, operations, fixed, each)


def drawn(drawing: Drawing, section: Mapping[str, Any], vocabulary: int) -> Generator:
    """The model, each of whose weights has its owner."""
    model = build(configure(section), vocabulary, vocabulary).train()
    assert isinstance(model, Generator), "plan"
    owners = parts(model)
    for name, parameter in model.named_parameters():
        drawing.own(parameter, owners[name])
    watch(drawing, model)
    return model


def passed(drawing: Drawing, model: Generator, rows: int, lengths: Lengths, precision: str) -> Passed:
    """A forward pass of so many pairs, all of one length."""
    source, target = (torch.full((rows, length), 4) for length in lengths)
    copies = (source, model.vocabulary + 1) if model.copies_words else ()
    batch = reading(source, torch.full((rows,), lengths.source), *copies)
    drawing.operations.clear()
    apart = [*model.parameters(), *model.buffers()]
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"), kept(apart) as bytes_kept:
        steps = model.teacher_forced(batch, target)
        model.decoder.loss(steps, target)  # which takes its gradient in the forward pass
    drawing.operations.clear()
    with torch.no_grad():
        model.decoder.loss(model.teacher_forced(batch, target), target)
    return Passed(dict(drawing.operations), bytes_kept())


class Memory(NamedTuple):
    """Bytes of a step at its largest. Gradients come while activations go; what the way back needs for a moment is not here."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        return sum(self)


def memory_of(cost: Cost, precision: str, batch_tokens: int, device: str = "cuda") -> Memory:
    """AdamW keeps two moments of each number; logits exist in chunks."""
    weights, rows = FULL * cost.size, cost.lengths.rows(batch_tokens)
    logits = min(rows * cost.lengths.target * cost.vocabulary, CHUNK[device])
    kept_there = cost.fixed[precision] + rows * cost.each[precision]
    return Memory(weights, weights, 2 * weights, kept_there, logits * PRECISIONS[precision])
