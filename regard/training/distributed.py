"""One process or many: read from torchrun's environment, nothing to configure."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import torch
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from regard.errors import PeerError, UserError
from regard.models.device import choose_device

JOIN = timedelta(minutes=2)  # processes that start together find each other in seconds, or never
WAIT = timedelta(hours=6)  # validation runs in the first process while the others wait
Result = TypeVar("Result")


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

    @property
    def command(self) -> str:
        """How this program is called with as many processes. (torchrun would take `--run` for an option of its own.)"""
        machines = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
        options = f"--standalone --nproc-per-node {self.world}" if machines == 1 else "..."
        return "regard" if self.world == 1 else f"torchrun {options} -m regard"

    def share(self, action: Callable[[], Result]) -> Result:
        """What the first process finds, in every process; its error too, lest the others wait for one that has failed."""
        if self.world == 1:
            return action()
        box: list[Any] = [None, None]
        try:
            if self.first:
                box[0] = action()
        except BaseException as error:
            with suppress(RuntimeError):  # the others may be gone
                distributed.broadcast_object_list([None, portable(error)], src=0)
            raise
        distributed.broadcast_object_list(box, src=0)
        result, failure = box
        if failure is not None:
            raise failure
        return result  # type: ignore[no-any-return]

    def in_turn(self, action: Callable[[], Result]) -> Result:
        """The first process does it, the others find it done."""
        done: list[Result] = []
        self.share(lambda: done.append(action()))
        return done[0] if self.first else action()

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


def portable(error: BaseException) -> Exception:
    """An error of the first process for the others: what people can mend in the same words, for one of them will say it."""
    if isinstance(error, UserError):
        return UserError(str(error))
    return error if isinstance(error, OSError) else PeerError(f"the first process failed: {type(error).__name__}: {error}")


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
    try:
        yield join(place)
    except RuntimeError as error:
        if not isinstance(error, distributed.DistError) and "gloo" not in str(error):
            raise
        time.sleep(2)  # the process at fault speaks first, and torchrun ends us if it is gone
        raise PeerError(f"the processes of this run do not reach each other: {str(error).splitlines()[0]}") from error
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def join(device: torch.device) -> Group:
    """Connect with every other process within a short time; later they may wait for each other long."""
    store, rank, world = next(rendezvous("env://", timeout=JOIN))
    store.set_timeout(JOIN)
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend, store=meet(store, rank, world), rank=rank, world_size=world, timeout=JOIN)
    processes = Group(rank, world, device)
    processes.largest(0)  # NCCL connects at its first use
    assert distributed.group.WORLD is not None
    distributed.group.WORLD.set_timeout(WAIT)
    return processes


def meet(store: Store, rank: int, world: int) -> Store:
    """A part of torchrun's store that no earlier attempt has written to.

    The store outlives a killed process, and Gloo would take the addresses in it for those of living ones (pytorch#135712).
    The first process names a new part to everyone who calls, until all have come; a call that a dead process left behind
    gets its answer too, and nobody hears it. (TORCHELASTIC_RESTART_COUNT would do on one machine; machines count apart.)
    """
    me, end = uuid4().hex, time.monotonic() + JOIN.total_seconds()
    if rank > 0:
        store.set(f"regard/call/{rank}", me)
        name = store.get(f"regard/answer/{me}").decode()
        store.add(f"regard/come/{name}", 1)
        return PrefixStore(name, store)
    while (come := store.add(f"regard/come/{me}", 0)) < world - 1:
        if time.monotonic() > end:
            raise PeerError(f"only {come + 1} of {world} processes came within {JOIN.total_seconds():.0f} seconds")
        calls = [key for key in (f"regard/call/{other}" for other in range(1, world)) if store.check([key])]
        for call in calls:
            store.set(f"regard/answer/{store.get(call).decode()}", me)
        time.sleep(0.02)
    return PrefixStore(me, store)
