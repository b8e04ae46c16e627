"""The scan of a gated cell as one function of autograd, whatever engine goes through the steps."""

from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.nn.autograd import apply
from regard.nn.lengths import length_mask
from regard.nn.recurrent.cell import CellState, GatedCell

Pre = Float[Tensor, "batch time blocks hidden"]
Track = Float[Tensor, "batch after hidden"]  # a part of the state, from before the first step to after the last


class ScanPass(NamedTuple):
    """What stays the same during a scan."""

    cell: GatedCell
    weights: dict[str, Tensor]  # U for h, U for t, V for m: [blocks * hidden, hidden]
    bias: Tensor | None  # of the first
    vectors: Sequence[Tensor]
    lengths: Int[Tensor, "batch"] | None
    mask: Float[Tensor, "batch hidden"] | None  # recurrent dropout

    def blocks(self, letter: str) -> slice:
        place = self.cell.place(letter)
        return slice(place[0], place[-1] + 1)

    def keep(self, vector: Tensor) -> Tensor:
        return vector if self.mask is None else vector * self.mask

    def active(self, time: int) -> Bool[Tensor, "batch time 1"] | None:
        if self.lengths is None:
            return None
        return length_mask(self.lengths, time)[..., None]


class ScanGradients(NamedTuple):
    pre: Pre
    starts: Sequence[Tensor]  # of the first state's parts
    vectors: Sequence[Tensor]


class Engine(NamedTuple):
    """What goes through the steps.

    forward(fixed, pre, tracks) completes the pre-activations in place and fills the tracks, whose first entries are there;
    backward(fixed, pre, tracks, gradient of the outputs, gradients of the last state's parts) gives the Gradients.
    """

    forward: Callable[[ScanPass, Pre, Sequence[Track]], None]
    backward: Callable[[ScanPass, Pre, Sequence[Track], Tensor, Sequence[Tensor]], ScanGradients]


def gated_scan(
    engine: Engine,
    cell: GatedCell,
    projected: Float[Tensor, "batch time width"],
    state: CellState,
    lengths: Int[Tensor, "batch"] | None = None,
    mask: Float[Tensor, "batch hidden"] | None = None,
) -> tuple[Float[Tensor, "batch time hidden"], CellState]:
    """`projected` is overwritten: nobody else may need its values."""
    maps = {letter: map for letter in "htm" if (map := cell.recurrent(letter)) is not None}
    bias = maps["h"].bias if "h" in maps else None
    weights = [map.weight for map in maps.values()]
    facts = (engine, cell, tuple(maps), lengths, mask)
    outputs, *last = apply(_Scan, facts, spread(cell, projected), *state, bias, *weights, *cell.vectors)
    return outputs, cell.State(*last)


def spread(cell: GatedCell, projected: Float[Tensor, "batch time width"]) -> Pre:
    """The input's share at the places of its pre-activations; nothing where a sum has no x."""
    blocks = torch.unflatten(projected, -1, (-1, cell.hidden_size))
    ours = type(cell).enter is GatedCell.enter and type(cell).bind_project is GatedCell.bind_project
    if len(cell.place("x")) == len(cell.terms):
        return blocks.contiguous() if ours else blocks.clone()  # an unknown last operation may need its result
    own, nothing = iter(torch.split(blocks, 1, dim=2)), torch.zeros_like(blocks[:, :, :1])
    return torch.cat([next(own) if "x" in word else nothing for word in cell.terms], dim=2)


@singledispatch
def advance(pre: Pre, engine: Engine, fixed: ScanPass, tracks: Sequence[Track]) -> None:
    """Through all steps."""
    engine.forward(fixed, pre, tracks)


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, facts: tuple[Any, ...], pre: Tensor, *parts: Any) -> tuple[Tensor, ...]:
        engine, cell, letters, lengths, mask = facts
        pre, kind, count = pre.detach(), pre.dtype, len(cell.State._fields)
        starts, bias, rest = parts[:count], parts[count], parts[count + 1 :]
        weights = {letter: weight.to(kind) for letter, weight in zip(letters, rest, strict=False)}
        fixed = ScanPass(cell, weights, bias, rest[len(letters) :], lengths, None if mask is None else mask.to(kind))
        batch, time = pre.shape[:2]
        tracks = [pre.new_empty(batch, time + 1, cell.hidden_size) for _ in starts]
        for track, start in zip(tracks, starts, strict=True):
            track[:, 0] = start
        advance(pre, engine, fixed, tracks)
        ctx.engine, ctx.fixed, ctx.count = engine, fixed._replace(weights={}, vectors=(), bias=None), count
        ctx.letters, ctx.kinds = letters, [None if part is None else part.dtype for part in parts]
        ctx.save_for_backward(pre, *tracks, *weights.values(), *fixed.vectors)
        return tracks[0][:, 1:], *(track[:, -1].clone() for track in tracks)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        pre, *saved = ctx.saved_tensors
        tracks, rest = saved[: ctx.count], saved[ctx.count :]
        letters, kinds = ctx.letters, ctx.kinds
        fixed = ctx.fixed._replace(weights=dict(zip(letters, rest, strict=False)), vectors=rest[len(letters) :])
        found = ctx.engine.backward(fixed, pre, tracks, gradients[0], gradients[1:])
        bias = found.pre[:, :, fixed.blocks("h")].sum((0, 1)).flatten() if kinds[ctx.count] is not None else None
        parts = [*found.starts, bias, *weight_gradients(fixed, pre, tracks, found.pre), *found.vectors]
        return None, found.pre, *(part if part is None else part.to(kind) for part, kind in zip(parts, kinds, strict=True))


def weight_gradients(fixed: ScanPass, pre: Pre, tracks: Sequence[Track], gradient: Pre) -> list[Tensor]:
    """dU = Σ_t dp_tᵀ h_{t-1} and so on, over all steps at once."""
    state = fixed.cell.State(*(track[:, :-1] for track in tracks))
    sources: dict[str, Callable[[], Tensor]] = {
        "h": lambda: state.hidden,
        "t": lambda: torch.tanh(state.hidden),
        "m": lambda: fixed.cell.reset(pre.unbind(2), state),
    }
    found = []
    for letter in fixed.weights:
        source = sources[letter]() if fixed.mask is None else sources[letter]() * fixed.mask[:, None]
        rows = gradient[:, :, fixed.blocks(letter)].flatten(2).flatten(0, 1)
        found.append(rows.T @ source.to(rows.dtype).flatten(0, 1))
    return found
