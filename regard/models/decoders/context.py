"""How a recurrent decoder uses the context c_i = Σ α_ij h_j. One class a way; CONTEXTS names them."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.nn.attention import AttentionState, AttentionStep, HardSample
from regard.nn.recurrent.cells import CellState
from regard.nn.transformer.experts import Use

Rows = Float[Tensor, "rows _"]


class RecurrentState(NamedTuple):
    cells: tuple[CellState, ...]  # the lowest layer first
    connections: tuple[Any, ...]  # what each connection over a layer remembers
    fed: Rows  # the last output where it is fed back (input feeding); otherwise of no width
    attention_state: AttentionState | None = None  # what attention remembers of earlier steps


class Inputs(NamedTuple):
    """What the first layer reads at one step."""

    share: Rows  # in its pre-activations
    words: Rows  # as they are, which a residual connection adds to what comes out
    beside: Rows | None = None  # what every layer above reads beside what the one below gives
    present: Bool[Tensor, "rows"] | None = None  # which are no padding, if experts have to know

    def plus(self, share: Rows) -> "Inputs":
        return self._replace(share=self.share + share)


class LayersRun(NamedTuple):
    """One step of the layers."""

    state: RecurrentState  # with what the layers left behind
    top: Rows  # what the last connection gives: s_i of the top layer, unless one lies over it
    use: Use | None = None  # of the experts between them


class Parts(NamedTuple):
    """A decoder's pieces, bound for one pass over a target."""

    stack: Callable[[Inputs, RecurrentState], LayersRun]  # one step of all layers
    attend: Callable[[Tensor, AttentionState | None], AttentionStep]  # query, what was left behind -> context, weights ...
    feed: Callable[[Tensor], Tensor] | None  # what is fed -> its share in the first cell
    join: Callable[[Tensor], Tensor]  # tanh(W [s_i; c_i] + b), the layer under the logits
    gate: Callable[[Tensor], Tensor] | None = None  # s_{i-1} -> β_i, how much of the context is let through


class DecoderStep(NamedTuple):
    """One step: what it knows, where it looked, and what it leaves behind."""

    known: Rows  # [s_i; c_i], or the joined output where the step itself needs it
    state: RecurrentState
    weights: Float[Tensor, "rows heads source"] | None = None
    choice: HardSample | None = None
    use: Use | None = None  # of experts


def join(hidden: Rows, context: Rows) -> Rows:
    return torch.cat([hidden, context], dim=-1)


class NoContext:
    """The plain encoder-decoder: all that is known of the source is in s_0 (Sutskever et al. 2014)."""

    gated: ClassVar[bool] = False  # whether the decoder has a gate for it

    def __init__(self, query_layer: int = -1) -> None:
        self.query_layer = query_layer  # the layer whose state asks: 0 the lowest, -1 the top one

    def fed_size(self, context_size: int, output_size: int) -> int:
        """Of what the first layer reads beside the last word."""
        return 0

    def beside_size(self, context_size: int) -> int:
        """Of what the layers above it read beside what the one below gives."""
        return 0

    @property
    def needs_lowest_only(self) -> bool:
        """Whether a step waits for nothing but the lowest layer of the one before."""
        return False

    def step(self, parts: Parts, inputs: Inputs, state: RecurrentState) -> DecoderStep:
        state, top, use = parts.stack(inputs, state)
        return DecoderStep(top, state, use=use)

    def output(self, parts: Parts, known: Float[Tensor, "*rows known"]) -> Float[Tensor, "*rows output"]:
        """The layer under the logits: it feeds nothing, so teacher forcing computes it for all steps at once."""
        return parts.join(known)


class AfterCell(NoContext):
    """s_i asks, c_i is joined after the cell: tanh(W [s_i; c_i])  (Luong et al. 2015, eq. 5)."""

    def step(self, parts: Parts, inputs: Inputs, state: RecurrentState) -> DecoderStep:
        state, top, use = parts.stack(inputs, state)
        context, weights, attention_state, choice = parts.attend(state.cells[self.query_layer].hidden, state.attention_state)
        return DecoderStep(join(top, context), state._replace(attention_state=attention_state), weights, choice, use)


class InputFeeding(NoContext):
    """As after_cell, and the joined output is an input of the next step (Luong et al. 2015, section 3.3)."""

    def fed_size(self, context_size: int, output_size: int) -> int:
        return output_size

    def step(self, parts: Parts, inputs: Inputs, state: RecurrentState) -> DecoderStep:
        assert parts.feed is not None
        state, top, use = parts.stack(inputs.plus(parts.feed(state.fed)), state)
        context, weights, attention_state, choice = parts.attend(state.cells[self.query_layer].hidden, state.attention_state)
        output = parts.join(join(top, context))
        return DecoderStep(output, state._replace(fed=output, attention_state=attention_state), weights, choice, use)

    def output(self, parts: Parts, known: Float[Tensor, "*rows known"]) -> Float[Tensor, "*rows output"]:
        return known


class IntoCell(NoContext):
    """s_{i-1} asks, c_i goes into the cell with the last word: s_i = f(s_{i-1}, y_{i-1}, c_i)  (Bahdanau et al. 2015)."""

    def fed_size(self, context_size: int, output_size: int) -> int:
        return context_size

    @property
    def needs_lowest_only(self) -> bool:
        return self.query_layer == 0

    def step(self, parts: Parts, inputs: Inputs, state: RecurrentState) -> DecoderStep:
        assert parts.feed is not None
        query = state.cells[self.query_layer].hidden
        context, weights, attention_state, choice = parts.attend(query, state.attention_state)
        context = context if parts.gate is None else parts.gate(query) * context
        state, top, use = parts.stack(self.enter(inputs.plus(parts.feed(context)), context), state)
        return DecoderStep(join(top, context), state._replace(attention_state=attention_state), weights, choice, use)

    def enter(self, inputs: Inputs, context: Rows) -> Inputs:
        return inputs


class ToAllLayers(IntoCell):
    """As into_cell, and c_i goes into all layers: s_i^k = f_k(s_{i-1}^k, x_i^{k-1}, c_i)  (Wu et al. 2016, figure 1)."""

    def beside_size(self, context_size: int) -> int:
        return context_size

    def enter(self, inputs: Inputs, context: Rows) -> Inputs:
        return inputs._replace(beside=context)


class Gated(IntoCell):
    """As into_cell, with β_i c_i in place of c_i: a gate β_i = σ(w s_{i-1} + b) says how much a word needs to be looked for
    (Xu et al. 2015, section 4.2.1)."""

    gated = True


CONTEXTS: dict[str, type[NoContext]] = {
    "none": NoContext,
    "into_cell": IntoCell,
    "after_cell": AfterCell,
    "input_feeding": InputFeeding,
    "to_all_layers": ToAllLayers,
    "gated": Gated,
}

QUERY_LAYERS = {"top": -1, "lowest": 0}  # whose state asks
