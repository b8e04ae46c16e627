"""Run a cell over a sequence. The loop is the specification; every other path is its twin, and PATHS names them."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.errors import UserError
from regard.nn.kernels.machine import able, interpreted
from regard.nn.kernels.recurrent import scan as persistent
from regard.nn.kernels.recurrent.equation import elementwise
from regard.nn.kernels.recurrent.tape import PERSISTENT_TAPE
from regard.nn.lengths import length_mask
from regard.nn.linear import LinearForInference
from regard.nn.outline import Outline
from regard.nn.recurrent.cell import Cell, CellState, GatedCell
from regard.nn.recurrent.diagonal import DIAGONAL
from regard.nn.recurrent.eager_tape import EAGER
from regard.nn.recurrent.gated_scan import Engine, gated_scan
from regard.nn.recurrent.gradient_flow import watched
from regard.nn.recurrent.library import library_scan
from regard.nn.recurrent.tape import TapeCell
from regard.nn.recurrent.tape_scan import EQUATIONS, TapeEngine, tape_scan

LARGE = 1 << 28  # elements: a gigabyte of float32
Outputs = Float[Tensor, "batch time hidden"]
Result = tuple[Outputs, CellState]


class ScanTask(NamedTuple):
    """One scan to run."""

    cell: Cell
    inputs: Float[Tensor, "batch time input"]
    state: CellState
    lengths: Int[Tensor, "batch"] | None  # a row's state stands still after its end
    mask: Float[Tensor, "batch hidden"] | None  # recurrent dropout: multiplies the past wherever it enters a product

    @property
    def active(self) -> Bool[Tensor, "batch time 1"] | None:
        if self.lengths is None:
            return None
        return length_mask(self.lengths, self.inputs.shape[1])[..., None]


def scan(
    cell: Cell,
    inputs: Float[Tensor, "batch time input"],
    state: CellState | None = None,
    lengths: Int[Tensor, "batch"] | None = None,
    mask: Float[Tensor, "batch hidden"] | None = None,
    path: str | None = None,
) -> Result:
    """h_1 .. h_T and the last state. After the end of a row its state, and so its output, stays as it is."""
    check(cell, inputs, state, lengths, mask)
    task = ScanTask(cell, inputs, cell.zero_state(inputs) if state is None else state, lengths, mask)
    if task.active is not None:
        task = task._replace(inputs=inputs.masked_fill(~task.active, 0.0))  # whatever stands after a row's end, even NaN
    if path is not None and path not in PATHS:
        raise UserError(f"unknown path {path!r} of a scan; choose from {', '.join(PATHS)}")
    if path is not None and not APPLIES[path](task) and not interpreted():
        raise UserError(f"the path {path!r} does not compute this scan of {type(cell).__name__}")
    return PATHS[path or choose_path(task)](task)


def check(cell: Cell, inputs: Tensor, state: CellState | None, lengths: Tensor | None, mask: Tensor | None) -> None:
    """Wrong sizes are told before anything is computed."""
    if inputs.dim() != 3 or inputs.shape[-1] != cell.input_size:
        raise UserError(f"the cell reads [batch, time, {cell.input_size}], not {list(inputs.shape)}")
    batch, time, _ = inputs.shape
    for part in () if state is None else state[: cell.starts]:
        if tuple(part.shape) != (batch, cell.hidden_size):
            raise UserError(f"the state before the first step is [{batch}, {cell.hidden_size}], not {list(part.shape)}")
    if mask is not None and tuple(mask.shape) != (batch, cell.hidden_size):
        raise UserError(f"a mask of what the past gives is [{batch}, {cell.hidden_size}], not {list(mask.shape)}")
    if lengths is None:
        return
    if tuple(lengths.shape) != (batch,):
        raise UserError(f"there is one length a row: [{batch}], not {list(lengths.shape)}")
    if torch.compiler.is_exporting():  # a graph has no errors to raise
        return
    right = ((lengths >= 0) & (lengths <= time)).all()
    if lengths.is_cuda:
        torch._assert_async(right, f"lengths lie between 0 and {time}")  # without waiting for the GPU
    elif not right:
        raise UserError(f"lengths lie between 0 and {time}; given: {lengths.tolist()}")


def choose_path(task: ScanTask) -> str:
    """The fastest path that computes this, the loop where none does: others read the weights of a cell themselves, whatever
    product it is to be made with."""
    products_of_its_own = any(isinstance(part, LinearForInference) for part in task.cell.children())
    if torch.compiler.is_exporting():
        return "traced" if APPLIES["traced"](task) else "loop"
    if task.inputs.shape[1] == 0 or len(task.inputs) == 0 or watched() is not None or products_of_its_own:
        return "loop"
    order = FASTEST.get("outline" if isinstance(task.inputs, Outline) else task.inputs.device.type, ())
    return next((name for name in order if APPLIES[name](task) and WORTH.get(name, APPLIES[name])(task)), "loop")


def loop(task: ScanTask) -> Result:
    cell, state, outputs = task.cell, task.state, []
    step, active, flow = cell.bind(task.mask), task.active, watched()
    shares = cell.project(task.inputs)  # the product W x of all steps at once
    if flow is None and task.mask is None and shares.shape[1] and (found := cell.run(shares, state, active)) is not None:
        return found
    if flow is not None:
        flow.begin()
    for time, projected in enumerate(shares.unbind(dim=1)):
        new = step(projected, state)
        if flow is not None:
            flow.watch(new.hidden)
        state = new if active is None else cell.freeze(active[:, time], new, state)
        outputs.append(state.hidden)
    empty = task.inputs.new_zeros(len(task.inputs), 0, cell.hidden_size)
    return (torch.stack(outputs, dim=1) if outputs else empty), state


def traced(task: ScanTask) -> Result:
    """The loop as one operator, for a graph of sequences of any length."""
    from torch._higher_order_ops.scan import scan as traced_scan

    cell = task.cell
    active = torch.ones_like(task.inputs[..., :1], dtype=torch.bool) if task.active is None else task.active
    step, reads = cell.bind(task.mask), (cell.project(task.inputs).transpose(0, 1), active.transpose(0, 1))

    def one(state: list[Tensor], read: tuple[Tensor, Tensor]) -> tuple[list[Tensor], Tensor]:
        before = cell.State(*state)
        after = cell.freeze(read[1], step(read[0], before), before)
        return list(after), after.hidden.clone()

    last, outputs = traced_scan(one, list(task.state), reads, dim=0)
    return outputs.transpose(0, 1), cell.State(*last)


def library(task: ScanTask) -> Result:
    assert isinstance(task.cell, GatedCell)
    return library_scan(task.cell, task.inputs, task.state, task.lengths)


def gated(engine: Engine) -> Callable[[ScanTask], Result]:
    def run(task: ScanTask) -> Result:
        cell = task.cell
        assert isinstance(cell, GatedCell)
        projected = cell.enter(cell.project(task.inputs))
        return gated_scan(engine, cell, projected, task.state, task.lengths, task.mask)

    return run


def taped(engine: TapeEngine) -> Callable[[ScanTask], Result]:
    def run(task: ScanTask) -> Result:
        assert isinstance(task.cell, TapeCell)
        return tape_scan(engine, task.cell, task.inputs, task.state, task.active)

    return run


def plain_gated(task: ScanTask) -> bool:
    return isinstance(task.cell, GatedCell) and elementwise(task.cell)


def library_applies(task: ScanTask) -> bool:
    """A library knows no mask, and on a GPU it would have to wait for the lengths to tell the memory at a row's end."""
    cell = task.cell
    known = isinstance(cell, GatedCell) and cell.twin is not None and not cell.normed and task.mask is None
    waits = task.inputs.is_cuda and task.lengths is not None and len(task.state) > 1
    return known and not waits and task.inputs.dtype != torch.float64


def faster_than_library(task: ScanTask) -> bool:
    """Where both compute a scan (measured on an H200, docs/performance.md)."""
    return not library_applies(task) or (isinstance(task.cell, GatedCell) and persistent.stays(task.cell, task.inputs))


def too_large_for_the_loop(task: ScanTask) -> bool:
    """The loop over a tape keeps [batch, time, time, hidden] elements for backward. It is somewhat faster while they fit."""
    batch, time, _ = task.inputs.shape
    return batch * time * time * task.cell.hidden_size > LARGE


def persistent_applies(task: ScanTask) -> bool:
    return isinstance(task.cell, GatedCell) and persistent.applies(task.cell, task.inputs)


def tape_applies(task: ScanTask) -> bool:
    return type(task.cell) in EQUATIONS and task.mask is None


PATHS: dict[str, Callable[[ScanTask], Result]] = {
    "loop": loop,
    "traced": traced,
    "library": library,
    "diagonal": gated(DIAGONAL),
    "persistent": gated(persistent.PERSISTENT),
    "tape": taped(EAGER),
    "persistent_tape": taped(PERSISTENT_TAPE),
}
APPLIES: dict[str, Callable[[ScanTask], bool]] = {
    "loop": lambda task: True,
    "traced": lambda task: torch.compiler.is_exporting() and not isinstance(task.cell, TapeCell),
    "library": library_applies,
    "diagonal": plain_gated,
    "persistent": persistent_applies,
    "tape": tape_applies,
    "persistent_tape": lambda task: tape_applies(task) and able(task.inputs),
}
FASTEST = {  # measured by benchmarks/cells.py
    "cpu": ("library", "diagonal", "tape"),
    "cuda": ("persistent", "persistent_tape", "library", "diagonal", "tape"),
    "outline": ("diagonal",),  # a library keeps what it likes
}
WORTH: dict[str, Callable[[ScanTask], bool]] = {"persistent": faster_than_library, "tape": too_large_for_the_loop}


def reverse_within(inputs: Float[Tensor, "batch time size"], lengths: torch.Tensor) -> Float[Tensor, "batch time size"]:
    """Turn each row round within its own length; what follows the end stays where it is. Its own inverse."""
    time = torch.arange(inputs.shape[1], device=inputs.device)
    backward = lengths[:, None] - 1 - time
    index = torch.where(backward >= 0, backward, time)
    return inputs.gather(1, index[..., None].expand_as(inputs))
