"""Strides of a search as CUDA graphs, one for each tuple of shapes that comes again. On a CPU nothing is recorded."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.nn.graphs import Refused, memory_left, no_collection, no_waiting
from regard.nn.state import tensors_in, with_tensors

KEEP, AFTER = 32, 1  # graphs that are kept; how often a shape comes before it is recorded, which also compiles its kernels
Stride = Callable[[Any, Any, int, int], Any]
Key = tuple[Any, ...]


class Recording(NamedTuple):
    """Where a graph finds its inputs and leaves its outputs."""

    graph: torch.cuda.CUDAGraph
    given: list[Tensor]
    going: list[Tensor]
    after: Any


class Sources(NamedTuple):
    """What an encoder reads; recorded as if it were a stride that nothing is given to."""

    values: Tensor
    place: Tensor  # the lengths


class Recorded:
    """`recorded(given, going, steps, room)`: trees of tensors, `going` with a `place`. What it returns lies where the next call
    of these shapes writes."""

    def __init__(self, stride: Stride) -> None:
        self.stride, self.recordings = stride, OrderedDict[Key, Recording]()
        self.waited, self.refused = Counter[Key](), dict[Key, str]()
        self.held: tuple[Key, Any] | None = None  # whose sentences lie in the inputs of which graph
        self.pool: Any = None  # of the graphs' memory: they never run at once, so they share it
        self.aside: Any = None  # the stream they are recorded on

    def __call__(self, given: Any, going: Any, steps: int, room: int) -> Any:
        key = key_of(given, going, steps, room)
        if key not in self.recordings and not (self.due(key, going) and self.record(key, given, going, steps, room)):
            return self.stride(given, going, steps, room)
        self.recordings.move_to_end(key)
        recording = self.recordings[key]
        if self.held is None or self.held[0] != key or self.held[1] is not given:
            copy_all(recording.given, tensors_in(given))
        copy_all(recording.going, tensors_in(going))
        recording.graph.replay()
        self.held = key, given
        return recording.after

    def due(self, key: Key, going: Any) -> bool:
        self.waited[key] += 1
        return going.place.is_cuda and self.waited[key] > AFTER and key not in self.refused and memory_left()

    def record(self, key: Key, given: Any, going: Any, steps: int, room: int) -> bool:
        """False, and `refused` says why, if something in it would wait for the GPU."""
        sides = copies_of(given), copies_of(going)
        own = with_tensors(given, sides[0]), with_tensors(going, sides[1]), steps, room
        if self.pool is None:
            self.pool, self.aside = torch.cuda.graph_pool_handle(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        try:
            self.warm_up(*own)
        except Refused as error:
            self.refused[key] = str(error)
            return False
        graph = torch.cuda.CUDAGraph()
        with no_collection(), torch.cuda.graph(graph, pool=self.pool, stream=self.aside):
            after = self.stride(*own)
        self.recordings[key] = Recording(graph, *sides, after)
        if len(self.recordings) > KEEP:
            self.recordings.popitem(last=False)
        return True

    def warm_up(self, given: Any, going: Any, steps: int, room: int) -> None:
        self.aside.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self.aside), no_waiting():
                self.stride(given, going, steps, room)
        except RuntimeError as error:
            raise Refused(str(error)) from error
        finally:
            torch.cuda.current_stream().wait_stream(self.aside)


def key_of(given: Any, going: Any, steps: int, room: int) -> Key:
    device = going.place.device.type
    lowered = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    shapes = ((tuple(one.shape), one.dtype, one.device) for one in tensors_in((given, going)))
    return steps, room, lowered, *shapes


def copies_of(tree: Any) -> list[Tensor]:
    """Each in one piece, so that what is bound to it in a graph is not copied at every replay."""
    return [one.clone(memory_format=torch.contiguous_format) for one in tensors_in(tree)]


def copy_all(into: list[Tensor], given: list[Tensor]) -> None:
    """A few launches for each dtype; what lies there already stays."""
    pairs = [(out, one) for out, one in zip(into, given, strict=True) if out is not one and out.numel()]
    for kind in dict.fromkeys(one.dtype for _, one in pairs):
        outs, ones = zip(*((out, one) for out, one in pairs if one.dtype == kind), strict=True)
        torch._foreach_copy_(outs, ones)
