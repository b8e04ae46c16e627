"""Ctrl-C and SIGTERM: finish the step, save, leave. A second Ctrl-C leaves at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interruption:
    """Which signal asked us to stop, if any."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.signal == signal.SIGINT == number:
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
