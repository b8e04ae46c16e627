"""What a step of training costs: parameters and operations by part, and the memory it takes."""

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from regard.data.batching import Batch
from regard.data.fields import Shape
from regard.models import Model, ModelConfig, build, configure
from regard.models.device import on_device
from regard.nn.cross_entropy import CHUNK
from regard.planning import paths  # noqa: F401 - what kernels do with outlines
from regard.planning.example import Lengths, example
from regard.planning.outline import Drawing, kept, watch
from regard.planning.parts import parameters, parts

PRECISIONS = {"float32": 4, "bfloat16": 2}  # bytes a number that is computed with
FULL = 4  # bytes a number of weights, gradients and moments, whatever the precision
ROWS = 1, 3  # sentences of the two passes from which everything is read off: all of it grows by so much a sentence


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
        """Forward and backward: a product has two more in the backward pass, one for each of its factors."""
        return 3 * self.forward


def cost_of(section: Mapping[str, Any], shapes: Mapping[str, Shape], lengths: Lengths, device: str = "cuda") -> Cost:
    """Of a recipe's `model` section, by the paths that the device takes; nothing of its size is allocated."""
    config = configure(section)
    batches = [on_device(example(config, shapes, lengths, rows), torch.device("cpu")) for rows in ROWS]
    with warnings.catch_warnings(), Drawing(device) as drawing:
        warnings.simplefilter("ignore")  # of slow paths: nothing is computed
        model = drawn(drawing, config, shapes)
        few, more = (operations_of(drawing, model, batch) for batch in batches)
        kept = {kind: [bytes_kept(model, batch, kind) for batch in batches] for kind in PRECISIONS}
    gap = ROWS[1] - ROWS[0]
    operations = {part: (more[part] - few[part]) / (gap * lengths.target) for part in more}
    each = {kind: (many - one) // gap for kind, (one, many) in kept.items()}
    fixed = {kind: one - ROWS[0] * each[kind] for kind, (one, _) in kept.items()}
    return Cost(lengths, shapes[model.writes].sizes[0], parameters(model), operations, fixed, each)


def drawn(drawing: Drawing, config: ModelConfig, shapes: Mapping[str, Shape]) -> Model:
    """The model, each of whose weights has its owner."""
    model = build(config, *shapes.values()).train()
    owners = parts(model)
    for name, parameter in model.named_parameters():
        drawing.own(parameter, owners[name])
    watch(drawing, model)
    return model


def operations_of(drawing: Drawing, model: Model, batch: Batch) -> dict[str, int]:
    """Forward, by part. With gradients, the loss would compute its own in the forward pass."""
    drawing.operations.clear()
    with torch.no_grad():
        model.loss(batch)
    return dict(drawing.operations)


def bytes_kept(model: Model, batch: Batch, precision: str) -> int:
    """What a forward pass keeps for backward."""
    apart = [*model.parameters(), *model.buffers()]
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"), kept(apart) as bytes_of:
        loss = model.loss(batch)
        assert loss.total.requires_grad
        return bytes_of()


class Memory(NamedTuple):
    """Bytes of a step at its largest. Gradients come while activations go; what the backward pass needs briefly is not here."""

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
