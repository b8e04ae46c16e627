"""How a recurrent decoder uses the context c_i = Σ α_ij h_j. One class a way; CONTEXTS names them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.attention import Choice, Glance, Trace
from regard.nn.cells import CellState

Rows = Float[Tensor, "rows _"]


class RecurrentState(NamedTuple):
    cells: tuple[CellState, ...]  # the lowest layer first
    fed: Rows  # the last output where it is fed back (input feeding); otherwise of no width
    trace: Trace | None = None  # what attention remembers of earlier steps


class Inputs(NamedTuple):
    """What the first layer reads at one step."""

    share: Rows  # in its pre-activations
    words: Rows  # as they are, which a residual connection adds to what comes out

    def plus(self, share: Rows) -> "Inputs":
        return self._replace(share=self.share + share)


class Parts(NamedTuple):
    """A decoder's pieces, bound for one pass over a target."""

    stack: Callable[[Inputs, tuple[CellState, ...]], tuple[CellState, ...]]  # one step of all layers
    look: Callable[[Tensor, Trace | None], Glance]  # query, what was left behind -> context, weights ...
    feed: Callable[[Tensor], Tensor] | None  # what is fed -> its share in the first cell
    join: Callable[[Tensor], Tensor]  # tanh(W [s_i; c_i] + b), the layer under the logits


class Moment(NamedTuple):
    """One step: what it knows, where it looked, and what it leaves behind."""

    known: Rows  # [s_i; c_i], or the joined output where the step itself needs it
    state: RecurrentState
    weights: Float[Tensor, "rows heads source"] | None = None
    choice: Choice | None = None


def join(hidden: Rows, context: Rows) -> Rows:
    return torch.cat([hidden, context], dim=-1)


class NoContext:
    """The plain encoder-decoder: all that is known of the source is in s_0 (Sutskever et al. 2014)."""

    def fed_size(self, context_size: int, output_size: int) -> int:
        return 0

    def step(self, parts: Parts, inputs: Inputs, state: RecurrentState) -> Moment:
        cells = parts.stack(inputs, state.cells)
        return Moment(cells[-1].hidden, RecurrentState(cells, state.fed))

    def output(self, parts: Parts, known: Float[Tensor, "*rows known"]) -> Float[Tensor, "*rows output"]:
        """The layer under the logits: it feeds nothing, so teacher forcing computes it for all steps at once."""
        return parts.join(known)


class AfterCell(NoContext):
    """s_i asks, c_i is joined after the cell: tanh(W [s_i; c_i])  (Luong et al. 2015, eq. 5)."""

    def step(self, parts: Parts, inputs: Inputs, state: RecurrentState) -> Moment:
        cells = parts.stack(inputs, state.cells)
        context, weights, trace, choice = parts.look(cells[-1].hidden, state.trace)
        return Moment(join(cells[-1].hidden, context), RecurrentState(cells, state.fed, trace), weights, choice)


class InputFeeding(NoContext):
    """As after_cell, and the joined output is an input of the next step (Luong et al. 2015, section 3.3)."""

    def fed_size(self, context_size: int, output_size: int) -> int:
        return output_size

    def step(self, parts: Parts, inputs: Inputs, state: RecurrentState) -> Moment:
        assert parts.feed is not None
        cells = parts.stack(inputs.plus(parts.feed(state.fed)), state.cells)
        context, weights, trace, choice = parts.look(cells[-1].hidden, state.trace)
        output = parts.join(join(cells[-1].hidden, context))
        return Moment(output, RecurrentState(cells, output, trace), weights, choice)

    def output(self, parts: Parts, known: Float[Tensor, "*rows known"]) -> Float[Tensor, "*rows output"]:
        return known


class IntoCell(NoContext):
    """s_{i-1} asks, c_i goes into the cell with the last word: s_i = f(s_{i-1}, y_{i-1}, c_i)  (Bahdanau et al. 2015)."""

    def fed_size(self, context_size: int, output_size: int) -> int:
        return context_size

    def step(self, parts: Parts, inputs: Inputs, state: RecurrentState) -> Moment:
        assert parts.feed is not None
        context, weights, trace, choice = parts.look(state.cells[-1].hidden, state.trace)
        cells = parts.stack(inputs.plus(parts.feed(context)), state.cells)
        return Moment(join(cells[-1].hidden, context), RecurrentState(cells, state.fed, trace), weights, choice)


CONTEXTS: dict[str, type[NoContext]] = {
    "none": NoContext,
    "into_cell": IntoCell,
    "after_cell": AfterCell,
    "input_feeding": InputFeeding,
}
