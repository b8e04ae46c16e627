"""Run a cell over a sequence. The loop is the specification; the fused scans of cuDNN and oneDNN are its twins."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.cells import Cell, CellState

Outputs = Float[Tensor, "batch time hidden"]


def scan(
    cell: Cell, inputs: Float[Tensor, "batch time input"], state: CellState | None = None, fused: bool = True
) -> tuple[Outputs, CellState]:
    """h_1 .. h_T and the last state. `fused=False` takes the loop even where a library has the same scan."""
    state = cell.zero_state(inputs) if state is None else state
    if fused and cell.fused is not None and inputs.shape[1] > 0 and inputs.dtype != torch.float64:
        return fused_scan(cell, inputs, state)
    return loop(cell, inputs, state)


def loop(cell: Cell, inputs: Float[Tensor, "batch time input"], state: CellState) -> tuple[Outputs, CellState]:
    step, outputs = cell.bind(), []
    for gates in cell.from_input(inputs).unbind(dim=1):  # the product W x of all steps at once
        state = step(gates, state)
        outputs.append(state.hidden)
    empty = inputs.new_zeros(inputs.shape[0], 0, cell.hidden_size)
    return (torch.stack(outputs, dim=1) if outputs else empty), state


def fused_scan(cell: Cell, inputs: Float[Tensor, "batch time input"], state: CellState) -> tuple[Outputs, CellState]:
    assert cell.fused is not None
    start = tuple(part.to(inputs.dtype).contiguous().unsqueeze(0) for part in state)  # cuDNN asks for it
    many = start if len(start) > 1 else start[0]
    outputs, *last = cell.fused(inputs, many, cell.weights, True, 1, 0.0, cell.training, False, True)
    return outputs, cell.State(*(part.squeeze(0) for part in last))


def reverse_within(inputs: Float[Tensor, "batch time size"], lengths: torch.Tensor) -> Float[Tensor, "batch time size"]:
    """Turn each row round within its own length; what follows the end stays where it is. Its own inverse."""
    time = torch.arange(inputs.shape[1], device=inputs.device)
    backward = lengths[:, None] - 1 - time
    index = torch.where(backward >= 0, backward, time)
    return inputs.gather(1, index[..., None].expand_as(inputs))
