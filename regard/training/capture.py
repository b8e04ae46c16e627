"""A training step as a CUDA graph: one launch plays again the thousands of launches of a loop over words.

A GPU computes a step of a decoder in less time than Python needs to ask for it. What was asked once is recorded and replayed,
with other numbers in the same places: one graph for each tuple of shapes that recurs.
"""

import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

Compute = Callable[..., Float[Tensor, ""]]
Key = tuple[Any, ...]


ROOM = 0.3  # the share of a GPU's memory that must be free for another recording


class Refused(RuntimeError):
    """What cannot be recorded."""


class Recording(NamedTuple):
    """A graph, and where it finds its inputs and leaves its loss."""

    graph: torch.cuda.CUDAGraph
    inputs: Sequence[Tensor]  # those of them that are tensors
    loss: Float[Tensor, ""]
    reached: Sequence[int]  # the parameters that have a gradient; others keep None, for an optimizer would decay them

    def replay(self, inputs: Sequence[Any]) -> Float[Tensor, ""]:
        torch._foreach_copy_(list(self.inputs), tensors_of(inputs), non_blocking=True)
        self.graph.replay()
        return self.loss.clone()


class Captured:
    """`captured(*inputs)` adds the gradients of compute(*inputs) to those of the parameters, and returns the loss.

    Inputs are tensors, or values that belong to a graph as shapes do (None, a size). What has come `after` times is recorded;
    where its graph had to make room it waits twice as long next time, then four times: `keep` graphs are kept, those
    used last. Graphs write into gradients that stay where they are; a gradient that was set to None counts as 0, so `zero_grad`
    and sums over several calls work as ever. `compute` must not wait for the GPU: one that does is computed directly, and
    `refused` says why. Name the `buffers` that it changes: they are put back after the rehearsal that precedes a recording.
    """

    def __init__(
        self, compute: Compute, parameters: Iterable[nn.Parameter], after: int = 2, keep: int = 16,
        buffers: Iterable[Tensor] = (),
    ) -> None:  # fmt: skip
        self.compute, self.after, self.keep, self.buffers = compute, after, keep, list(buffers)
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.gradients: list[Tensor] = []
        self.recordings: OrderedDict[Key, Recording] = OrderedDict()
        self.waited, self.dropped = Counter[Key](), Counter[Key]()
        self.refused: dict[Key, str] = {}
        self.pool: Any = None  # of the graphs' memory: they never run at once, so they share it
        self.aside: Any = None  # the stream they are recorded on: what one of them gives back only the same stream may take

    def __call__(self, *inputs: Any) -> Float[Tensor, ""]:
        key = key_of(inputs)
        if key not in self.recordings and not (self.ripe(key, inputs) and self.record(key, inputs)):
            return self.directly(*inputs)
        self.recordings.move_to_end(key)
        self.settle(self.recordings[key].reached)
        return self.recordings[key].replay(inputs)

    def directly(self, *inputs: Any) -> Float[Tensor, ""]:
        loss = self.compute(*inputs)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def ripe(self, key: Key, inputs: Sequence[Any]) -> bool:
        self.waited[key] += 1
        enough = self.waited[key] > self.after * 2 ** self.dropped[key]
        return enough and key not in self.refused and on_gpu(inputs) and roomy()

    def record(self, key: Key, inputs: Sequence[Any]) -> bool:
        """Whether it could be done."""
        try:
            self.recordings[key] = self.recorded([copied(one) for one in inputs])
        except Refused as error:
            self.refused[key] = str(error)
            return False
        if len(self.recordings) > self.keep:
            oldest, _ = self.recordings.popitem(last=False)
            self.waited[oldest], self.dropped[oldest] = 0, self.dropped[oldest] + 1
        return True

    def recorded(self, inputs: Sequence[Any]) -> Recording:
        if self.pool is None:
            self.pool, self.aside = torch.cuda.graph_pool_handle(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        graph, chance, aside = torch.cuda.CUDAGraph(), torch.cuda.get_rng_state(), self.aside
        before = [parameter.grad for parameter in self.parameters]
        try:
            reached = self.rehearse(inputs, aside)
            self.put(self.places())
            with torch.cuda.graph(graph, pool=self.pool, stream=aside):
                loss = self.directly(*inputs)
        finally:
            self.put(before)
            torch.cuda.set_rng_state(chance)  # a recording uses up no random numbers
        return Recording(graph, tensors_of(inputs), loss, reached)

    def rehearse(self, inputs: Sequence[Any], aside: torch.cuda.Stream) -> list[int]:
        """One run aside, which does what only a first run does; the parameters that it reached."""
        kept = [buffer.clone() for buffer in self.buffers]
        self.put([None] * len(self.parameters))
        aside.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(aside), no_waiting():
                self.directly(*inputs)
        except RuntimeError as error:
            raise Refused(str(error)) from error
        finally:
            torch.cuda.current_stream().wait_stream(aside)
            for buffer, value in zip(self.buffers, kept, strict=True):
                buffer.copy_(value)
        return [number for number, parameter in enumerate(self.parameters) if parameter.grad is not None]

    def places(self) -> list[Tensor]:
        """Where graphs leave the gradients; made when first asked for."""
        if not self.gradients:
            self.gradients = [torch.zeros_like(parameter) for parameter in self.parameters]
        return self.gradients

    def put(self, gradients: Sequence[Tensor | None]) -> None:
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient

    def settle(self, reached: Sequence[int]) -> None:
        """Let the gradients lie where the graphs add to them: those that were set to None as 0, others moved."""
        places = self.places()
        if fresh := [places[number] for number in reached if self.parameters[number].grad is None]:
            torch._foreach_zero_(fresh)
        for number in reached:
            gradient = self.parameters[number].grad
            if gradient is not None and gradient is not places[number]:
                places[number].copy_(gradient)
            self.parameters[number].grad = places[number]


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


def roomy() -> bool:
    """Whether there is memory for one graph more: each keeps what its shapes need, and none is ever given back."""
    free, total = torch.cuda.mem_get_info()
    return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > ROOM * total


def tensors_of(inputs: Sequence[Any]) -> list[Tensor]:
    return [one for one in inputs if isinstance(one, Tensor)]


def copied(one: Any) -> Any:
    return one.clone() if isinstance(one, Tensor) else one


def on_gpu(inputs: Sequence[Any]) -> bool:
    return all(tensor.is_cuda for tensor in tensors_of(inputs))


def key_of(inputs: Sequence[Any]) -> Key:
    return tuple((tuple(one.shape), one.dtype, one.device) if isinstance(one, Tensor) else one for one in inputs)
