"""One scan by two paths, compared: values, the last state, and all gradients."""

import torch

from regard.nn.recurrent.cells import CELLS, GatedCell
from regard.nn.recurrent.scan import scan

GATED = [name for name, cell in CELLS.items() if issubclass(cell, GatedCell)]
TAPES = [name for name in CELLS if name not in GATED]
TWINS = [name for name in GATED if CELLS[name].twin is not None]
TOLERANCE = 1e-4  # of a norm, in float32: sums in another order, over up to 33 steps


def some_lengths(batch, time, device="cpu"):
    """An empty row first, then a full one, one of a single step, and others."""
    known = [0, time, min(1, time), time // 2, max(0, time - 1)]
    return torch.tensor([known[row % len(known)] for row in range(batch)], device=device)


def half_kept(batch, hidden, dtype=torch.float32, device="cpu"):
    return torch.nn.functional.dropout(torch.ones(batch, hidden, dtype=dtype, device=device), 0.5)


class Trial:
    """A cell with inputs, a first state and a random gradient for each result."""

    def __init__(self, cell, batch, time, ragged=False, masked=False, dtype=torch.float32, device="cpu"):
        def random(*shape):
            return torch.randn(*shape, dtype=dtype, device=device)

        self.cell = cell.to(device=device, dtype=dtype)
        self.inputs = random(batch, time, cell.input_size).requires_grad_()
        self.starts = [random(batch, cell.hidden_size).requires_grad_() for _ in range(cell.starts)]
        self.lengths = some_lengths(batch, time, device) if ragged else None
        self.mask = half_kept(batch, cell.hidden_size, dtype, device) if masked else None
        self.back = {}

    @property
    def after(self):
        """Whether a row has ended."""
        return torch.arange(self.inputs.shape[1], device=self.inputs.device) >= self.lengths[:, None]

    def put_after(self, number):
        """Let it stand in the inputs wherever a row has ended."""
        self.inputs = self.inputs.detach().masked_fill(self.after[..., None], number).requires_grad_()

    def scan(self, path):
        state = self.cell.start(*self.starts) if self.starts else None
        return scan(self.cell, self.inputs, state, self.lengths, self.mask, path)

    def values(self, path):
        outputs, last = self.scan(path)
        if not hasattr(last, "visible"):
            return {"outputs": outputs} | last._asdict()
        seen = last.visible[..., None]  # the rest of a tape is read by nobody
        tape = {"context": last.context, "keys": last.keys * seen, "values": last.values * seen, "visible": seen.to(outputs)}
        looks = {} if self.lengths is not None else {"weights": last.weights}
        return {"outputs": outputs, "hidden": last.hidden} | tape | looks

    def results(self, path):
        """{what: tensor}: the outputs, the last state and the gradients of inputs, first state and parameters."""
        values = self.values(path)
        for what, value in values.items():
            self.back.setdefault(what, torch.randn_like(value))
        leaves = {"inputs": self.inputs} | {f"start {part}": one for part, one in enumerate(self.starts)}
        leaves |= dict(self.cell.named_parameters())
        learned = [what for what in values if what not in ("visible", "weights")]
        total = sum((values[what] * self.back[what]).sum() for what in learned)
        gradients = torch.autograd.grad(total, leaves.values(), allow_unused=True, materialize_grads=True)
        return values | {f"gradient of {what}": one for what, one in zip(leaves, gradients, strict=True)}


def differences(ours, theirs):
    """{what: |ours - theirs| / |theirs|}, 0 where both are 0."""
    found = {}
    for what, reference in theirs.items():
        size, gap = reference.double().norm(), (ours[what].double() - reference.double()).norm()
        found[what] = (gap / size).item() if size > 0 else gap.item()
    return found


def far(ours, theirs, tolerance=TOLERANCE):
    """What differs by more than the tolerance; a NaN does."""
    return {what: gap for what, gap in differences(ours, theirs).items() if not gap <= tolerance}
