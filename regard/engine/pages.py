"""Weights in memory whose pages are large. A step reads all of them, and looks up in tables where each page of them lies."""

import math
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

BLOCK, LINE = 1 << 25, 64  # bytes that are asked for at once, of which those are used that are written; of a cache's line


class Pages:
    """Handed out from front to back, and given back when nothing in a block is used any more."""

    def __init__(self) -> None:
        self.block: mmap.mmap | None = None
        self.used = 0

    def take(self, size: int) -> Tensor | None:
        """So many bytes, or none where the system has no such pages."""
        begin = self.used + -self.used % LINE
        if self.block is None or begin + size > len(self.block):
            self.block, begin = block(max(size, BLOCK)), 0
        if self.block is None:
            return None
        self.used = begin + size
        return torch.frombuffer(self.block, dtype=torch.uint8, count=size, offset=begin)


def block(size: int) -> mmap.mmap | None:
    try:
        found = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        found.madvise(mmap.MADV_HUGEPAGE)
    except (AttributeError, OSError, ValueError):
        return None
    return found


CURRENT: ContextVar[Pages | None] = ContextVar("pages", default=None)


@contextmanager
def large_pages() -> Iterator[None]:
    """For weights that stay: what is laid out for one batch is written faster where others lay before."""
    before = CURRENT.set(Pages())
    try:
        yield
    finally:
        CURRENT.reset(before)


def room(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Of numbers that are not yet written, side by side."""
    pages, size = CURRENT.get(), math.prod(shape) * dtype.itemsize
    memory = None if pages is None or not size else pages.take(size)
    return torch.empty(shape, dtype=dtype) if memory is None else memory.view(dtype).view(shape)


def laid_out(tensor: Tensor) -> Tensor:
    """A copy whose numbers lie side by side."""
    return room(tensor.shape, tensor.dtype).copy_(tensor)
