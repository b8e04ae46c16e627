"""What recording a CUDA graph asks for, whatever is recorded."""

import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

ROOM = 0.3  # the share of a GPU's memory that must be free for another recording


class Refused(RuntimeError):
    """What cannot be recorded."""


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage is found while a graph is recorded: CUDA refuses one in which graphs, events or pinned memory are given back,
    as those are that an earlier run of this process has left in cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def no_waiting() -> Iterator[None]:
    """RuntimeError where something would wait for the GPU; found while recording, it would spoil the random numbers too."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not find everything
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def memory_left() -> bool:
    """Whether there is memory for one graph more: each keeps what its shapes need, and none is ever given back."""
    free, total = torch.cuda.mem_get_info()
    return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > ROOM * total
