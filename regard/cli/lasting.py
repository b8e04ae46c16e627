"""What a process keeps until it ends."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting() -> Iterator[None]:
    """Modules that are imported here for the first time stay. Python would look for garbage among them again and again, and
    once more when the process ends: a third of the time of one that imports torch and does nothing with it."""
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
