"""What models tell of where they look, beyond what their attentions return: of poolings, of copies, of experts."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from regard.data.batching import Batch
from regard.models.interface import AttentionWeights, Model
from regard.nn.pooling import Pooling
from regard.nn.recurrent.cell import CellState
from regard.nn.recurrent.tape import Tape
from regard.nn.transformer.experts import Experts, Scored


@torch.inference_mode()
def all_weights(model: Model, batch: Batch) -> list[AttentionWeights]:
    """All attentions of a batch of one whole row, and the experts of its positions."""
    found = model.attention_weights(batch)
    with routing(model) as routed:
        model.loss(batch)
    return [*found, *routed()]


def pooling_weights(
    pool: Pooling, states: Float[Tensor, "1 source size"], visible: Bool[Tensor, "1 source"]
) -> list[AttentionWeights]:
    """How much of each state of one row is in the whole, if the pooling attends."""
    weights = pool.weights(states, visible)
    return [] if weights is None else [AttentionWeights("pooling", 1, weights[0])]


def recurrence_weights(connections: Iterable[nn.Module], steps: Sequence[Sequence[CellState]]) -> list[AttentionWeights]:
    """From the cells' states after each step of one row: where they looked in their past, and where connections looked in the
    states below."""
    found = list[AttentionWeights]()
    for layer, (connection, states) in enumerate(zip(connections, zip(*steps, strict=True), strict=True), start=1):
        if isinstance(states[0], Tape):
            found.append(AttentionWeights("decoder_recurrence", layer, on_the_tape(states)))
        if connection.attends:
            below = torch.stack([state.hidden for state in states], dim=1)
            found.append(AttentionWeights("decoder_recurrence", layer, connection.weights(below)[0]))  # type: ignore[operator]
    return found


def on_the_tape(states: Sequence[Tape]) -> Float[Tensor, "1 steps tape"]:
    """A row for each step; at what was written later it could not look."""
    width = states[-1].keys.shape[1]
    return torch.stack([functional.pad(one.weights[0], (0, width - one.weights.shape[1])) for one in states])[None]


@contextmanager
def routing(model: nn.Module) -> Iterator[Any]:
    """A function that says which experts the positions of one row were sent to, and with which share, since the context began:
    what their gates gave while the model computed."""
    seen: dict[str, list[Tensor]] = {}
    handles = [
        one.gate.register_forward_hook(keeper(one, seen.setdefault(name, [])))
        for name, one in model.named_modules()
        if isinstance(one, Experts)
    ]
    try:
        yield lambda: routed(seen)
    finally:
        for handle in handles:
            handle.remove()


def keeper(experts: Experts, kept: list[Tensor]) -> Any:
    def keep(gate: nn.Module, inputs: Any, scored: Scored) -> None:
        kept.append(experts.shares(scored))

    return keep


def routed(seen: dict[str, list[Tensor]]) -> list[AttentionWeights]:
    """In the order of the modules; a position stands in one call where all are computed at once, in one each where they are
    computed step by step."""
    found = list[AttentionWeights]()
    for name, shares in seen.items():
        layer, side = re.search(r"layers\.(\d+)\.", name), name.split(".")[0]
        kind = f"{side}_experts"
        above = [one.layer for one in found if one.kind == kind]
        number = int(layer[1]) + 1 if layer is not None else max(above, default=0) + 1
        found.append(AttentionWeights(kind, number, torch.cat(shares)[None].float()))
    return found
