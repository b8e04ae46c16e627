"""One process or many: read from torchrun's environment, nothing to configure."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple

import torch
from torch import distributed

from regard.models.device import choose_device


class Group(NamedTuple):
    """This process among its peers."""

    rank: int
    world: int
    device: torch.device

    @property
    def first(self) -> bool:
        """Only the first process writes files and talks to people."""
        return self.rank == 0

    @property
    def alone_on_gpu(self) -> bool:
        return self.world == 1 and self.device.type == "cuda"

    def share(self, value: Any) -> Any:
        """The first process's value, in every process."""
        if self.world == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box, src=0)
        return box[0]

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        if self.world > 1:
            distributed.all_reduce(values)
        return values

    def largest(self, number: int) -> int:
        """The largest number of all processes: what one has seen, all know."""
        if self.world == 1:
            return number
        box = torch.tensor(number, device=self.device)
        distributed.all_reduce(box, distributed.ReduceOp.MAX)
        return int(box)


@contextmanager
def group(device: str = "auto") -> Iterator[Group]:
    """Join the processes that torchrun started, or be alone."""
    world, local = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("LOCAL_RANK", "0"))
    place = choose_device(device, local)
    if world == 1:
        yield Group(0, 1, place)
        return
    if place.type == "cuda":
        torch.cuda.set_device(place)
    # validation runs in the first process while the others wait: hours, not the default ten minutes
    backend = "nccl" if place.type == "cuda" else "gloo"
    distributed.init_process_group(backend, timeout=timedelta(hours=6))
    try:
        yield Group(distributed.get_rank(), world, place)
    finally:
        distributed.destroy_process_group()
