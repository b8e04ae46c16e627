"""The scans of libraries: cuDNN on a GPU, oneDNN or ATen on a CPU, for the cells that have such a twin."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.nn.lengths import length_mask
from regard.nn.recurrent.cell import CellState, GatedCell, in_one_block


def library_scan(
    cell: GatedCell, inputs: Float[Tensor, "batch time input"], state: CellState, lengths: Int[Tensor, "batch"] | None = None
) -> tuple[Float[Tensor, "batch time hidden"], CellState]:
    if lengths is None or not len(inputs):
        return whole(cell, inputs, state)
    if len(state) > 1:
        return in_cuts(cell, inputs, state, lengths)
    outputs, _ = whole(cell, inputs, state)
    rows = torch.arange(len(inputs), device=inputs.device)
    ended = outputs[rows, (lengths - 1).clamp(min=0)]
    last = torch.where((lengths > 0)[:, None], ended, state.hidden.to(ended.dtype))
    active = length_mask(lengths, inputs.shape[1])
    return torch.where(active[..., None], outputs, last[:, None]), cell.State(last)


def whole(
    cell: GatedCell, inputs: Float[Tensor, "batch time input"], state: CellState
) -> tuple[Float[Tensor, "batch time hidden"], CellState]:
    assert cell.twin is not None
    start = tuple(part.to(inputs.dtype).contiguous().unsqueeze(0) for part in state)  # cuDNN asks for it
    many = start if len(start) > 1 else start[0]
    weights = cell.weights
    if any(one.dtype != weights[0].dtype for one in weights) or (inputs.is_cuda and scattered(weights)):
        weights = in_one_block(weights)  # matrices that training has rounded or dropped, and exact biases
    outputs, *last = cell.twin.scan(inputs, many, weights, True, 1, 0.0, cell.training, False, True)
    return outputs, cell.State(*(part.squeeze(0) for part in last))


def scattered(weights: Sequence[Tensor]) -> bool:
    return len({one.untyped_storage().data_ptr() for one in weights}) > 1


def in_cuts(
    cell: GatedCell, inputs: Float[Tensor, "batch time input"], state: CellState, lengths: Int[Tensor, "batch"]
) -> tuple[Float[Tensor, "batch time hidden"], CellState]:
    """A library tells the memory c only at the last step: so cut the sequence wherever a row ends, and go on with the rest."""
    order = lengths.argsort(descending=True, stable=True)
    sorted_lengths, inputs = lengths[order].tolist(), inputs[order]
    living, ended = rows_of(state, order), rows_of(state, order[:0])
    pieces, at = [], 0
    for cut in sorted({0, *sorted_lengths, inputs.shape[1]}):
        alive = sum(length > at for length in sorted_lengths)
        frozen = ended.hidden[:, None].expand(-1, cut - at, -1)
        if alive and cut > at:
            outputs, living = whole(cell, inputs[:alive, at:cut], living)
            frozen = torch.cat([outputs, frozen])
        if cut > at:
            pieces.append(frozen)
        staying = sum(length > cut for length in sorted_lengths)
        ended = cell.State(*(torch.cat([new[staying:], old]) for new, old in zip(living, ended, strict=True)))
        living, at = cell.State(*(part[:staying] for part in living)), cut
    back = order.argsort()
    return torch.cat(pieces, dim=1)[back], rows_of(ended, back)


def rows_of(state: CellState, rows: Int[Tensor, "rows"]) -> CellState:
    return type(state)(*(part[rows] for part in state))
