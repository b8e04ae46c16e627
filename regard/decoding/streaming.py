"""Outputs while they are being written: what a callback is told after every step, and how it ends an output."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class PartialOutput(NamedTuple):
    """What is known of an output after a step: its words so far, or the best hypothesis of its beam."""

    row: int  # which of the texts
    sample: int  # which of its samples; 0 in a search
    text: str
    tokens: list[int]
    log_prob: float  # of its tokens, and of its end mark if it has one
    finished: bool  # nothing more is told of it


OnStep = Callable[[PartialOutput], bool | None]  # False ends this output as it stands
Tell = Callable[[int, list[int], float, bool], bool]  # sample, tokens up to END, log p, whether it goes on -> whether it shall
# What a search calls after each step: tokens with `end` after their end, log p, which go on -> which shall
Watch = Callable[[Int[Tensor, "rows length"], Float[Tensor, "rows"], Bool[Tensor, "rows"]], Bool[Tensor, "rows"]]


def watcher(tells: Sequence[Tell], count: int) -> Watch:
    """Each sentence has a `Tell` and `count` rows. An output is told until it is finished, and once that it is."""
    done: set[int] = set()

    def watch(tokens: Tensor, totals: Tensor, going: Tensor) -> Tensor:
        wanted = []
        for place, (row, total, goes_on) in enumerate(zip(tokens.tolist(), totals.tolist(), going.tolist(), strict=True)):
            if place not in done:
                goes_on = tells[place // count](place % count, row, total, goes_on)
            if not goes_on:
                done.add(place)
            wanted.append(goes_on)
        return torch.tensor(wanted, device=going.device)

    return watch


def streamed(search: Callable[[OnStep], Any]) -> Iterator[PartialOutput]:
    """What the search tells, one after the other. It runs in a thread of its own and waits until somebody asks for more; it
    ends when nobody will: after `break`, or `close()`."""
    told, left = Queue[PartialOutput | BaseException | None](maxsize=1), Event()

    def on_step(one: PartialOutput) -> bool:
        told.put(one)
        return not left.is_set()

    def run() -> None:
        try:
            search(on_step)
            told.put(None)
        except BaseException as error:  # raised where it is asked for
            told.put(error)

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        while (one := told.get()) is not None:
            if isinstance(one, BaseException):
                raise one
            yield one
    finally:
        left.set()
        while thread.is_alive():
            with suppress(Empty):
                told.get(timeout=0.01)
