"""Processes of one thread each that answer parts of a file. They are forked from one that has loaded the model, and share its
weights. Two of them on two cores do more than two threads that wait for each other in every layer."""

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

import torch

from regard.errors import UserError

Job = TypeVar("Job")
Answer = TypeVar("Answer")


def usual_processes(device: torch.device) -> int:
    """One for each core that this process may use; on a GPU one, and where a fork is not safe."""
    return len(os.sched_getaffinity(0)) if device.type == "cpu" and sys.platform == "linux" else 1


@contextmanager
def threads_for(processes: int) -> Iterator[None]:
    """Several processes have a thread each, and so has the one that is forked: threads do not survive a fork."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if processes > 1 else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Workers(Generic[Job, Answer]):
    """`with Workers(2, work) as workers: workers.each(jobs)`. They start when there is more than one job for them."""

    def __init__(self, count: int, work: Callable[[Job], Answer]) -> None:
        self.count, self.work = count, work
        self.idle, self.processes = list[Connection](), dict[Connection, Any]()

    def __enter__(self) -> "Workers[Job, Answer]":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.terminate()
            process.join()

    def each(self, jobs: Iterable[Job]) -> Iterator[Answer]:
        """The answers in whatever order they come: each idle process gets the next job."""
        waiting = list(jobs)[::-1]
        if self.count == 1 or (len(waiting) == 1 and not self.processes):
            yield from map(self.work, waiting[::-1])
            return
        while len(self.processes) < self.count:
            self.start()
        while waiting or len(self.idle) < self.count:
            while waiting and self.idle:
                with suppress(OSError):  # one that is gone is told of when its answer is read
                    self.idle.pop().send(waiting.pop())
            for pipe in wait([pipe for pipe in self.processes if pipe not in self.idle]):
                answer = self.receive(pipe)  # type: ignore[arg-type]
                self.idle.append(pipe)  # type: ignore[arg-type]
                yield answer

    def start(self) -> None:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, [*self.processes, ours], self.work), daemon=True)
        process.start()
        theirs.close()  # so that its end is read here when the process is gone
        self.processes[ours] = process
        self.idle.append(ours)

    def receive(self, pipe: Connection) -> Answer:
        try:
            answer: Any = pipe.recv()
        except (EOFError, OSError):
            process = self.processes[pipe]
            process.join(5)
            raise UserError(
                f"one of {self.count} processes that answer lines was ended {why(process.exitcode)}; the lines written so far "
                "are whole; --processes 1 needs less memory"
            ) from None
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]


def why(code: int | None) -> str:
    killed = code is not None and code < 0
    return f"by {signal.Signals(-code).name}" if killed and code is not None else f"with exit code {code}"


def serve(pipe: Connection, others: list[Connection], work: Callable[[Any], Any]) -> None:
    """The life of one process: it ends when nobody is there to ask. Ctrl-C is heard by the one that asks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for other in others:  # copies of ends that belong to the one that asks
        other.close()
    torch.set_num_threads(1)
    while True:
        try:
            job = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer = work(job)
        except UserError as error:
            answer = UserError(str(error))
        except Exception:
            answer = RuntimeError(traceback.format_exc())
        pipe.send(answer)
