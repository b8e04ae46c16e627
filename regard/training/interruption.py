"""Ctrl-C and SIGTERM: finish the step, save, leave. A second Ctrl-C leaves at once."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Which signal asked us to stop, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None
        # a terminal's Ctrl-C reaches every process, and torchrun passes on its own
        self.patience = 2 if "TORCHELASTIC_RUN_ID" in os.environ else 1

    def __bool__(self) -> bool:
        return self.signal is not None

    def handle(self, number: int, frame: FrameType | None) -> None:
        self.patience -= number == signal.SIGINT
        if self.patience < 0:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def interruptions() -> Iterator[Interruption]:
    """Watch for both signals while the block runs (in the main thread; elsewhere nothing is watched)."""
    interruption = Interruption()
    old = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            old[number] = signal.signal(number, interruption.handle)
    except ValueError:  # not the main thread
        pass
    try:
        yield interruption
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
