"""Where a model lives, and the way of a batch to it."""

import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.batching import Batch
from regard.errors import UserError

DEVICES = ("auto", "cpu", "cuda")
BUSY = 0.7  # tasks per core before training has begun


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    if name not in DEVICES:
        raise UserError(f"unknown device {name!r}; choose from {', '.join(DEVICES)}")
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("device 'cuda' was asked for and this machine has none; take 'auto' or 'cpu'")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    torch.backends.cudnn.allow_tf32 = False  # float32 means float32: cuDNN's scans would round their inputs to 10 bits
    return torch.device("cuda", local_rank % torch.cuda.device_count())


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """So many threads of a CPU, for as long as this lasts; torch's own choice where none is given."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def tell_threads(device: torch.device) -> str:
    """How many threads compute, and what to do where other work has the cores: threads that wait for each other spin."""
    if device.type != "cpu":
        return ""
    threads, load = torch.get_num_threads(), os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    busy = load > BUSY * (os.cpu_count() or 1) and threads > 1
    advice = f"; other work keeps the cores busy (load {load:.1f}), training.threads=1 may be faster" if busy else ""
    return f", {threads} thread{'' if threads == 1 else 's'}{advice}"


def make_deterministic() -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


def on_device(batch: Batch, device: torch.device) -> Batch:
    """The same columns as tensors."""
    columns = batch.columns.values()
    tensors = iter(sent([array for one in columns for array in one[:2]], device))
    moved = {name: one._replace(values=next(tensors), lengths=next(tensors)) for name, one in batch.columns.items()}
    return Batch(moved, batch.rows)


def sent(arrays: Sequence[npt.NDArray[Any] | None], device: torch.device) -> list[Any]:
    """To a GPU on a stream of their own, so that they are there by the time that earlier steps are done."""
    tensors = [None if array is None else torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    if device.type != "cuda":
        return tensors
    now, aside = torch.cuda.current_stream(device), courier(device)
    with torch.cuda.stream(aside):
        tensors = [None if one is None else one.pin_memory().to(device, non_blocking=True) for one in tensors]
    now.wait_stream(aside)
    for one in tensors:
        if one is not None:
            one.record_stream(now)  # its memory is not the courier's again before they are done
    return tensors


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    (tensor,) = sent([array], device)
    return tensor  # type: ignore[no-any-return]


@functools.cache
def courier(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def autocast(device: torch.device, precision: str) -> torch.autocast:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bfloat16")


def draw_from(seed: int, device: torch.device) -> None:
    """Random numbers begin anew."""
    if device.type == "cpu":  # torch.manual_seed notes a stack trace for each GPU library not yet in use
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
