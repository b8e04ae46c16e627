"""|dL/dh_t| for every t, measured in one backward pass: where gradients vanish and where they explode."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from jaxtyping import Float
from torch import Tensor

Norms = Float[Tensor, "batch"]


class GradientFlow:
    """The norms of dL/dh_t, a list a scan, in the order in which the scans ran."""

    def __init__(self) -> None:
        self.scans: list[list[Norms | None]] = []

    def begin(self) -> None:
        self.scans.append([])

    def watch(self, hidden: Float[Tensor, "batch hidden"]) -> None:
        scan = self.scans[-1]
        time = len(scan)
        scan.append(None)

        def note(gradient: Tensor) -> None:
            scan[time] = torch.linalg.vector_norm(gradient, dim=-1)

        if hidden.requires_grad:
            hidden.register_hook(note)  # type: ignore[no-untyped-call]

    def norms(self, scan: int = 0) -> Float[Tensor, "time batch"]:
        """After `backward`. A step that the loss does not depend on has a gradient of 0."""
        steps = self.scans[scan]
        known = next((one for one in steps if one is not None), None)
        if known is None:
            raise RuntimeError("no gradient has come by: call backward on a loss that depends on the scan first")
        return torch.stack([torch.zeros_like(known) if one is None else one for one in steps])


_current: ContextVar[GradientFlow | None] = ContextVar("gradient flow", default=None)


@contextmanager
def gradient_flow() -> Iterator[GradientFlow]:
    """Scans inside take the loop, whose states can be watched one by one; run `backward` inside or after."""
    flow = GradientFlow()
    token = _current.set(flow)
    try:
        yield flow
    finally:
        _current.reset(token)


def watched() -> GradientFlow | None:
    return _current.get()
