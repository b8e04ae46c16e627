"""The scan of a cell that attends to its past, as one function of autograd whose memory is linear in time."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.autograd import apply
from regard.nn.linear import at_least_float32
from regard.nn.recurrent.cell import GatedCell
from regard.nn.recurrent.cells import LSTMCell, TanhCell
from regard.nn.recurrent.tape import MemoryTapeCell, TanhAttentionCell, Tape, TapeCell, attend_to_tape

EQUATIONS: dict[type[TapeCell], type[GatedCell]] = {MemoryTapeCell: LSTMCell, TanhAttentionCell: TanhCell}


@functools.cache
def equation_for(cell: type[TapeCell]) -> GatedCell:
    """A cell of its kind, for its `update` alone; making it takes no random number from anybody."""
    with torch.random.fork_rng(devices=[]):
        return EQUATIONS[cell](1, 1)


def tape_scan(
    engine: "TapeEngine", cell: TapeCell, inputs: Float[Tensor, "batch time input"], state: Tape, active: Tensor | None
) -> tuple[Float[Tensor, "batch time hidden"], Tape]:
    """The SimpleRNN's c_t, read after h_t, is what the LSTM would call s_{t+1}, with the query of x_t: the same scan, a step
    later, whose first context is given."""
    projected, batch, later = cell.project(inputs), len(inputs), isinstance(cell, TanhAttentionCell)
    if active is not None:
        projected = projected.masked_fill(~active, 0.0)  # whatever stands after a row's end stays finite
    pre, asked = torch.split(projected, [cell.gates * cell.hidden_size, cell.hidden_size], dim=-1)
    shares = torch.cat([pre, asked.roll(1, dims=1) if later else asked], dim=-1)
    values = state.values.chunk(cell.starts, dim=-1)
    facts = (engine, equation_for(type(cell)), later, state.visible)  # type: ignore[arg-type]
    weights = (cell.from_context.weight, cell.query.weight, cell.key.weight, cell.score_vector)
    parts = (shares, state.context, values[0], values[-1], state.keys)
    hidden, memory, keys, contexts = apply(_TapeScan, facts, *parts, *weights)
    seen = inputs.new_ones(inputs.shape[:2]).bool() if active is None else active[..., 0]
    tape = state._replace(
        keys=keys,
        values=torch.cat([hidden, memory][: cell.starts], dim=-1),
        visible=torch.cat([state.visible, seen], dim=1),
    )
    if later:
        last, looked = attend_to_tape(asked[:, -1] + cell.query(contexts[:, -1]), cell.score_vector, tape)
        contexts = torch.cat([contexts[:, 1:], last[:, None]], dim=1)
    else:
        with torch.no_grad():
            past = tape._replace(**{name: getattr(tape, name)[:, :-1] for name in ("keys", "values", "visible")})
            _, looked = attend_to_tape(asked[:, -1] + cell.query(contexts[:, -2]), cell.score_vector, past)
    outputs = hidden[:, state.keys.shape[1] :]
    steps = seen.sum(1)
    rows = torch.arange(batch, device=inputs.device)
    end = torch.cat([state.hidden[:, None].to(hidden.dtype), outputs], dim=1)[rows, steps]
    if active is not None:
        outputs = torch.where(active, outputs, end[:, None])
    return outputs, tape._replace(hidden=end, context=contexts[rows, steps], weights=looked)


class Fixed(NamedTuple):
    """What stays the same during a scan."""

    equation: GatedCell  # whose `update` makes h (and c) from pre-activations and what was read
    given: bool  # whether the first step reads the given context instead of the tape
    before: int  # positions on the tape at the start
    visible: Bool[Tensor, "batch before"]  # which of them count
    gates: Tensor  # U, [gates * hidden, hidden]
    query: Tensor  # W_c
    key: Tensor  # W_h
    score_vector: Tensor  # v

    @property
    def width(self) -> int:
        return self.gates.shape[0]


class Tapes(NamedTuple):
    """Positions first those from before the scan. `contexts[:, t + 1]` is what step t read, `adapted` its memory part."""

    hidden: Float[Tensor, "batch tape hidden"]
    memory: Float[Tensor, "batch tape hidden"]
    keys: Float[Tensor, "batch tape hidden"]
    contexts: Float[Tensor, "batch after hidden"]
    adapted: Float[Tensor, "batch time hidden"]
    queries: Float[Tensor, "batch time hidden"]
    log_sums: Float[Tensor, "batch time"]  # log Σ_i e^score of each step


class TapeGradients(NamedTuple):
    pre: Tensor  # of the pre-activations
    queries: Tensor
    hidden: Tensor  # of the positions from before
    memory: Tensor
    keys: Tensor  # of all positions
    context: Tensor  # of the first
    score_vector: Tensor


class TapeEngine(NamedTuple):
    forward: Callable[[Fixed, Tensor, Tapes], None]
    backward: Callable[[Fixed, Tensor, Tapes, tuple[Tensor, ...]], TapeGradients]


class _TapeScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, facts: tuple[Any, ...], projected: Tensor, context: Tensor, hidden: Tensor, memory: Tensor, keys: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        engine, equation, given, visible = facts
        projected, kind = projected.detach().clone(), projected.dtype
        fixed = Fixed(equation, given, keys.shape[1], visible, *(weight.to(kind) for weight in weights))
        batch, time = projected.shape[:2]
        tapes = Tapes(  # type: ignore[call-arg]
            *(extend(tape.to(kind), time) for tape in (hidden, memory, keys)), extend(context[:, None].to(kind), time),
            *(projected.new_empty(batch, time, hidden.shape[-1]) for _ in range(2)),
            at_least_float32(projected.new_empty(batch, time)),
        )  # fmt: skip
        engine.forward(fixed, projected, tapes)
        ctx.engine, ctx.facts, ctx.kind = engine, fixed[:4], weights[0].dtype
        ctx.save_for_backward(projected, *tapes, *fixed[4:])
        return tapes.hidden, tapes.memory, tapes.keys, tapes.contexts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        projected, *saved = ctx.saved_tensors
        tapes, fixed = Tapes(*saved[:7]), Fixed(*ctx.facts, *saved[7:])
        found = ctx.engine.backward(fixed, projected, tapes, gradients)
        before = fixed.before

        def total(gradient: Tensor, source: Tensor) -> Tensor:
            return (gradient.flatten(0, 1).T @ source.flatten(0, 1)).to(ctx.kind)

        weights = (
            total(found.pre, tapes.contexts[:, 1:]), total(found.queries, tapes.contexts[:, :-1]),
            total(found.keys[:, before:], tapes.hidden[:, before:]), found.score_vector.to(ctx.kind),
        )  # fmt: skip
        both = torch.cat([found.pre, found.queries], dim=-1)
        return None, both, found.context, found.hidden, found.memory, found.keys[:, :before], *weights


def extend(tape: Tensor, time: int) -> Tensor:
    """Room for what the scan will write."""
    return torch.cat([tape, tape.new_zeros(len(tape), time, tape.shape[-1])], dim=1)
