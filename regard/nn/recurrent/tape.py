"""Cells that attend to their own past (lecture 003; Cheng, Dong & Lapata 2016): all earlier states lie on a tape.

Each position asks with α_i = softmax_i v · tanh(W_x x_t + W_c c_{t-1} + W_h h_i), over the tape.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import UserError
from regard.nn.attention.attend import normalise
from regard.nn.linear import Linear, bind_linear
from regard.nn.recurrent.cell import Cell, CellState, Step


class Tape(NamedTuple):
    """The state of a cell that remembers all earlier ones. `values` holds what is summed at each position: h, or h and c."""

    hidden: Float[Tensor, "batch hidden"]
    context: Float[Tensor, "batch hidden"]  # c_{t-1} (the SimpleRNN's) or s_{t-1} (the LSTM's)
    keys: Float[Tensor, "batch tape hidden"]  # W_h h_i
    values: Float[Tensor, "batch tape values"]
    visible: Bool[Tensor, "batch tape"]  # a position after a row's end is none
    weights: Float[Tensor, "batch looked"]  # of the last step


class TapeCell(Cell):
    """What both share: the input's share is [pre-activations; W_x x], and positions are written to the tape."""

    State = Tape
    gates: ClassVar[int]

    def __init__(self, input_size: int, hidden_size: int, layer_norm: bool = False) -> None:
        if layer_norm:
            raise UserError("layer norm is for gated cells; this one attends to its past")
        super().__init__(input_size, hidden_size)
        self.width = (self.gates + 1) * hidden_size
        self.from_input = Linear(input_size, self.width)
        self.from_context = Linear(hidden_size, self.gates * hidden_size, bias=False)
        self.query = Linear(hidden_size, hidden_size, bias=False)
        self.key = Linear(hidden_size, hidden_size, bias=False)
        self.score_vector = nn.Parameter(torch.empty(hidden_size))
        self.begin()

    def bind_project(self) -> Callable[[Tensor], Tensor]:
        return bind_linear(self.from_input)

    def zero_state(self, like: Float[Tensor, "batch *rest"]) -> Tape:
        """c_0 = h_0 = 0 and an empty tape."""
        zeros = like.new_zeros(like.shape[0], self.hidden_size)
        empty = like.new_zeros(like.shape[0], 0)
        values = like.new_zeros(like.shape[0], 0, self.starts * self.hidden_size)
        return Tape(zeros, zeros, like.new_zeros(like.shape[0], 0, self.hidden_size), values, empty.bool(), empty)

    def start(self, *vectors: Float[Tensor, "batch hidden"]) -> Tape:
        """A given first state is the first position of the tape."""
        hidden, visible = vectors[0], torch.ones(len(vectors[0]), 1, dtype=torch.bool, device=vectors[0].device)
        values = torch.cat(vectors, dim=-1)
        return Tape(hidden, hidden, self.key(hidden)[:, None], values[:, None], visible, torch.ones_like(hidden[:, :1]))

    def end(self, state: CellState) -> tuple[Tensor, ...]:
        return (state.hidden,)

    def freeze(self, active: Bool[Tensor, "batch 1"], new: CellState, old: CellState) -> Tape:
        hidden, context = (torch.where(active, new[part], old[part]) for part in (0, 1))
        visible = torch.cat([new.visible[:, :-1], new.visible[:, -1:] & active], dim=1)
        return new._replace(hidden=hidden, context=context, visible=visible)  # type: ignore[no-any-return]


def attend_to_tape(
    query: Float[Tensor, "batch hidden"], score_vector: Float[Tensor, "hidden"], tape: Tape
) -> tuple[Float[Tensor, "batch values"], Float[Tensor, "batch tape"]]:
    """Σ α_i value_i and α; 0 where nothing is visible."""
    scores = torch.tanh(query[:, None] + tape.keys) @ score_vector
    weights, _ = normalise(scores[:, None], ~tape.visible[:, None])
    return (weights @ tape.values).squeeze(1), weights.squeeze(1)


def write(tape: Tape, key: Float[Tensor, "batch hidden"], value: Float[Tensor, "batch values"]) -> Tape:
    return tape._replace(
        keys=torch.cat([tape.keys, key[:, None]], dim=1),
        values=torch.cat([tape.values, value[:, None]], dim=1),
        visible=torch.cat([tape.visible, tape.visible.new_ones(len(key), 1)], dim=1),
    )


class TanhAttentionCell(TapeCell):
    """h_t = tanh(A [x_t; c_{t-1}] + b),  c_t = Σ_{i ≤ t} α_i h_i: the SimpleRNN with self-attention.

    The slides' figures begin with c_1 = h_1, so that h_{t+1} sees all of h_1 .. h_t; their formula sums to t - 1.
    """

    gates = 1

    def bind(self, mask: Float[Tensor, "batch hidden"] | None = None) -> Step:
        from_context, query, key = bind_linear(self.from_context), bind_linear(self.query), bind_linear(self.key)

        def step(projected: Tensor, state: Tape) -> Tape:
            pre, asked = projected.chunk(2, dim=-1)
            context = state.context if mask is None else state.context * mask
            hidden = torch.tanh(pre + from_context(context))
            tape = write(state, key(hidden), hidden)
            context, weights = attend_to_tape(asked + query(context), self.score_vector, tape)
            return tape._replace(hidden=hidden, context=context, weights=weights)

        return step


class MemoryTapeCell(TapeCell):
    """s_t = Σ_{i < t} α_i h_i,  c'_t = Σ_{i < t} α_i c_i;  i, f, o, g from x_t and s_t;
    c_t = f ∗ c'_t + i ∗ tanh(g),  h_t = o ∗ tanh(c_t): the LSTM with a memory tape.

    The lecture's slide leaves out the last tanh; Cheng et al. (eq. 9) and its own LSTM have it.
    """

    gates = 4
    starts = 2

    def bind(self, mask: Float[Tensor, "batch hidden"] | None = None) -> Step:
        from_context, query, key = bind_linear(self.from_context), bind_linear(self.query), bind_linear(self.key)

        def step(projected: Tensor, state: Tape) -> Tape:
            pre, asked = torch.split(projected, [4 * self.hidden_size, self.hidden_size], dim=-1)
            last = state.context if mask is None else state.context * mask
            both, weights = attend_to_tape(asked + query(last), self.score_vector, state)
            context, adapted = both.chunk(2, dim=-1)
            input, forget, candidate, read = (pre + from_context(context if mask is None else context * mask)).chunk(4, dim=-1)
            memory = torch.sigmoid(forget) * adapted + torch.sigmoid(input) * torch.tanh(candidate)
            hidden = torch.sigmoid(read) * torch.tanh(memory)
            tape = write(state, key(hidden), torch.cat([hidden, memory], dim=-1))
            return tape._replace(hidden=hidden, context=context, weights=weights)

        return step


def tape_attention_weights(cell: TapeCell, inputs: Float[Tensor, "batch time input"]) -> Float[Tensor, "batch time time"]:
    """α_ti: the weights of each step on all that was read so far."""
    step, state, rows = cell.bind(), cell.zero_state(inputs), []
    for projected in cell.project(inputs).unbind(dim=1):
        state = step(projected, state)
        rows.append(functional.pad(state.weights, (0, inputs.shape[1] - state.weights.shape[1])))
    return torch.stack(rows, dim=1)
