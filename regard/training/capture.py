"""A training step as a CUDA graph: one launch plays again the thousands of launches of a loop over words.

A GPU computes a step of a decoder in less time than Python needs to ask for it. What was asked once is recorded and replayed,
with other numbers in the same places: one graph for each tuple of shapes that recurs.
"""

import gc
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.graphs import Refused, memory_left, no_collection, no_waiting

Losses = Float[Tensor, "*losses"]  # a loss, or several, of which the first is differentiated
Compute = Callable[..., Losses]
Key = tuple[Any, ...]


class CapturedGraph(NamedTuple):
    graph: torch.cuda.CUDAGraph
    loss: Losses  # where it leaves it


class Recording(NamedTuple):
    """Takes of one computation, where they find their inputs, and what they reach. A graph that is still being played cannot be
    launched again before its end, and the GPU would then wait for the host: where a shape comes again at once, two take turns.
    """

    takes: deque[CapturedGraph]
    inputs: Sequence[Any]
    reached: Sequence[int]  # the parameters that have a gradient; others keep None, for an optimizer would decay them

    def replay(self, inputs: Sequence[Any]) -> Losses:
        torch._foreach_copy_(tensors_of(self.inputs), tensors_of(inputs), non_blocking=True)
        self.takes.rotate()
        self.takes[0].graph.replay()
        return self.takes[0].loss.clone()


class Captured:
    """`captured(*inputs)` adds the gradients of compute(*inputs) to those of the parameters, and returns the loss. Of several
    the first is differentiated.

    Inputs are tensors, or values that belong to a graph as shapes do (None, a size). What has come `after` times is recorded;
    where its graph had to make room it waits twice as long next time, then four times: `keep` graphs are kept, those
    used last. Graphs leave gradients in one place, where the parameters find them; those that parameters had before are added,
    so `zero_grad` and sums over several calls work as ever. `compute` must not wait for the GPU: one that does is computed
    directly, and `refused` says why. Name the `buffers` that it changes: they are put back after the warm-up that precedes a
    recording. `leaves` stand for the parameters where compute reads something else for them, in their order.
    """

    def __init__(
        self, compute: Compute, parameters: Iterable[nn.Parameter], after: int = 2, keep: int = 16,
        buffers: Iterable[Tensor] = (), leaves: Iterable[Tensor] | None = None,
    ) -> None:  # fmt: skip
        self.compute, self.after, self.keep, self.buffers = compute, after, keep, list(buffers)
        self.parameters = [parameter for parameter in parameters if parameter.requires_grad]
        self.leaves = self.parameters if leaves is None else list(leaves)
        self.gradients: list[Tensor] = []
        self.recordings: OrderedDict[Key, Recording] = OrderedDict()
        self.latest: Key = ()  # what was replayed last
        self.waited, self.dropped = Counter[Key](), Counter[Key]()
        self.refused: dict[Key, str] = {}
        self.pool: Any = None  # of the graphs' memory: they never run at once, so they share it
        self.aside: Any = None  # the stream they are recorded on: what one of them gives back only the same stream may take

    def __call__(self, *inputs: Any) -> Losses:
        key = key_of(inputs)
        if key not in self.recordings and not (self.due(key, inputs) and self.record(key, inputs)):
            return self.directly(*inputs)
        recording = self.recordings[key]
        if key == self.latest and len(recording.takes) == 1:
            recording.takes.append(self.take(recording.inputs, recording.reached))
        self.recordings.move_to_end(key)
        self.latest, before = key, self.set_aside(recording.reached)
        loss = recording.replay(inputs)
        self.hand_over(recording.reached, before)
        return loss

    def directly(self, *inputs: Any) -> Losses:
        loss, gradients = self.differentiated(*inputs)
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if gradient is not None:  # which may be another parameter's too
                own = torch.empty_like(parameter).copy_(gradient)
                parameter.grad = own if parameter.grad is None else parameter.grad + own
        return loss

    def differentiated(self, *inputs: Any) -> tuple[Losses, Sequence[Tensor | None]]:
        loss = self.compute(*inputs)
        return loss.detach(), torch.autograd.grad(loss.flatten()[0], self.leaves, allow_unused=True)

    def due(self, key: Key, inputs: Sequence[Any]) -> bool:
        self.waited[key] += 1
        enough = self.waited[key] > self.after * 2 ** self.dropped[key]
        return enough and key not in self.refused and on_gpu(inputs) and memory_left()

    def record(self, key: Key, inputs: Sequence[Any]) -> bool:
        """Record a graph for these shapes; False if the computation cannot be recorded."""
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
            gc.collect()  # the graphs of an earlier run hold memory
            self.pool, self.aside = torch.cuda.graph_pool_handle(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        chance = torch.cuda.get_rng_state()
        try:
            reached = self.warm_up(inputs)
        finally:
            torch.cuda.set_rng_state(chance)  # a recording uses up no random numbers
        return Recording(deque([self.take(inputs, reached)]), inputs, reached)

    def take(self, inputs: Sequence[Any], reached: Sequence[int]) -> CapturedGraph:
        graph, places, chance = torch.cuda.CUDAGraph(), self.places(), torch.cuda.get_rng_state()
        with no_collection(), torch.cuda.graph(graph, pool=self.pool, stream=self.aside):
            loss, gradients = self.differentiated(*inputs)
            copy_all([places[number] for number in reached], [one for one in gradients if one is not None])
            del gradients  # their memory is the pool's again
        torch.cuda.set_rng_state(chance)
        return CapturedGraph(graph, loss)

    def warm_up(self, inputs: Sequence[Any]) -> list[int]:
        """One run aside, which does what only a first run does; the parameters that it reached."""
        kept = [buffer.clone() for buffer in self.buffers]
        self.aside.wait_stream(torch.cuda.current_stream())
        try:
            with torch.cuda.stream(self.aside), no_waiting():
                _, gradients = self.differentiated(*inputs)
        except RuntimeError as error:
            raise Refused(str(error)) from error
        finally:
            torch.cuda.current_stream().wait_stream(self.aside)
            for buffer, value in zip(self.buffers, kept, strict=True):
                buffer.copy_(value)
        return [number for number, gradient in enumerate(gradients) if gradient is not None]

    def places(self) -> list[Tensor]:
        """Where graphs leave the gradients; made when first asked for."""
        if not self.gradients:
            self.gradients = [torch.zeros_like(parameter) for parameter in self.parameters]
        return self.gradients

    def set_aside(self, reached: Sequence[int]) -> dict[int, Tensor]:
        """The gradients that are there already; what lies where a graph will write is copied."""
        before = {number: self.parameters[number].grad for number in reached}
        return {
            number: gradient.clone() if gradient is self.gradients[number] else gradient
            for number, gradient in before.items()
            if gradient is not None
        }

    def hand_over(self, reached: Sequence[int], before: dict[int, Tensor]) -> None:
        """What a graph has left becomes the parameters' gradients, with what they had before added."""
        for number in reached:
            self.parameters[number].grad = self.gradients[number]
        if before:
            torch._foreach_add_([self.gradients[number] for number in before], list(before.values()))


def copy_all(into: Sequence[Tensor], given: Sequence[Tensor]) -> None:
    """A few launches for each dtype; for dtypes mixed in one list there would be one for each tensor."""
    for kind in dict.fromkeys(one.dtype for one in given):
        pairs = [(out, one) for out, one in zip(into, given, strict=True) if one.dtype == kind]
        torch._foreach_copy_([out for out, _ in pairs], [one for _, one in pairs])


def tensors_of(inputs: Sequence[Any]) -> list[Tensor]:
    return [one for one in inputs if isinstance(one, Tensor)]


def copied(one: Any) -> Any:
    return one.clone() if isinstance(one, Tensor) else one


def on_gpu(inputs: Sequence[Any]) -> bool:
    return all(tensor.is_cuda for tensor in tensors_of(inputs))


def key_of(inputs: Sequence[Any]) -> Key:
    return tuple((tuple(one.shape), one.dtype, one.device) if isinstance(one, Tensor) else one for one in inputs)
