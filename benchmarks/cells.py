"""Scans of every cell, forward and backward, against a loop that multiplies the input at every step, and against libraries.

python benchmarks/cells.py                 on a CPU: batch 32, time 64, hidden 256
python benchmarks/cells.py --device cuda   on a GPU: batch 64, time 512, hidden 512, bfloat16; libraries in CUDA graphs
python benchmarks/cells.py --device cuda --memory
"""

import argparse
import json
from collections.abc import Callable

import torch
from timing import race, report
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.recurrent.cells import CELLS, Cell
from regard.nn.recurrent.scan import scan

LIBRARY = {"tanh": nn.RNN, "relu": nn.RNN, "lstm": nn.LSTM, "lstm_b": nn.LSTM, "gru": nn.GRU}


def plain(linear: nn.Linear) -> Callable[[Tensor], Tensor]:
    return lambda inputs: functional.linear(inputs, linear.weight, linear.bias)


def step_by_step(cell: Cell, inputs: Tensor) -> Tensor:
    """Everything inside the loop, each product by itself, plain autograd: how one would write it down first."""
    state, outputs = cell.zero_state(inputs), []
    for now in inputs.unbind(1):
        state = plain_step(cell, now, state)
        outputs.append(state.hidden)
    return torch.stack(outputs, dim=1)


def plain_step(cell: Cell, now: Tensor, state):
    from regard.nn.recurrent import cell as cells
    from regard.nn.recurrent import cells as kinds
    from regard.nn.recurrent import tape as tapes

    saved = cells.shared, kinds.shared, tapes.shared
    cells.shared = kinds.shared = tapes.shared = plain  # the reference step without the products' fast path
    try:
        return cell(now, state)
    finally:
        cells.shared, kinds.shared, tapes.shared = saved


def both_ways(forward: Callable[[Tensor], Tensor], inputs: Tensor, gradient: Tensor, module: nn.Module) -> Callable[[], None]:
    parameters = [inputs, *module.parameters()]

    def run() -> None:
        torch.autograd.grad(forward(inputs), parameters, gradient, allow_unused=True)
        if inputs.is_cuda:
            torch.cuda.synchronize()

    return run


def graphed(run: Callable[[], None]) -> Callable[[], None]:
    """The same launches in one CUDA graph: what a library costs without its launches."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    synchronize, torch.cuda.synchronize = torch.cuda.synchronize, lambda: None
    try:
        with torch.cuda.graph(graph):
            run()
    finally:
        torch.cuda.synchronize = synchronize

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return replay


def library(kind: type[nn.RNNBase], size: int, like: Tensor) -> nn.RNNBase:
    module = kind(size, size, batch_first=True).to(like.device, like.dtype)
    module.flatten_parameters()
    return module


def on_cpu(names: list[str], batch: int = 32, time: int = 64, size: int = 256) -> None:
    inputs, gradient = torch.randn(batch, time, size, requires_grad=True), torch.randn(batch, time, size)
    for name in names:
        cell = CELLS[name](size, size)
        rivals = {
            "ours": both_ways(lambda x, cell=cell: scan(cell, x)[0], inputs, gradient, cell),
            "step by step": both_ways(lambda x, cell=cell: step_by_step(cell, x), inputs, gradient, cell),
        }
        if name in LIBRARY:
            module = library(LIBRARY[name], size, inputs)
            rivals[f"nn.{LIBRARY[name].__name__}"] = both_ways(lambda x, module=module: module(x)[0], inputs, gradient, module)
        medians = race(rivals, rounds=9)
        for rival in list(rivals)[1:]:
            report("cells", "ours", rival, medians, cell=name, device="cpu", batch=batch, time=time, size=size)


def on_gpu(names: list[str], batch: int = 64, time: int = 512, size: int = 512) -> None:
    inputs = torch.randn(batch, time, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn_like(inputs)
    graphs = {}
    for kind in (nn.RNN, nn.LSTM, nn.GRU):
        module = library(kind, size, inputs)
        graphs[kind] = graphed(both_ways(lambda x, module=module: module(x)[0], inputs, gradient, module))
    for name in names:
        cell = CELLS[name](size, size).to(inputs)
        kind = LIBRARY.get(name, nn.GRU)
        rivals = {"ours": both_ways(lambda x, cell=cell: scan(cell, x)[0], inputs, gradient, cell)}
        rivals[f"graphed cuDNN {kind.__name__}"] = graphs[kind]
        medians = race(rivals, rounds=11)
        report("cells", "ours", list(rivals)[1], medians, cell=name, device="cuda", batch=batch, time=time, size=size)
        if name in ("mut1", "lstm_tape"):
            loop = both_ways(lambda x, cell=cell: scan(cell, x, path="loop")[0], inputs, gradient, cell)
            medians |= race({"eager loop": loop}, rounds=2)
            report("cells", "ours", "eager loop", medians, cell=name, device="cuda", batch=batch, time=time, size=size)


def memory_of(forward: Callable[[Tensor], Tensor], inputs: Tensor) -> tuple[float, float]:
    """MB that a forward pass leaves for the way back, and MB at the peak of both."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    outputs = forward(inputs)
    saved = torch.cuda.memory_allocated() - before
    outputs.backward(torch.ones_like(outputs))
    return saved / 1e6, (torch.cuda.max_memory_allocated() - before) / 1e6


def memory(names: list[str], batch: int = 64, size: int = 512) -> None:
    for name in names:
        for time in (256, 512, 1024):
            inputs = torch.randn(batch, time, size, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            kind = LIBRARY.get(name, nn.GRU)
            cell, module = CELLS[name](size, size).to(inputs), library(kind, size, inputs)
            ways = {"ours": lambda x, cell=cell: scan(cell, x)[0], "cuDNN": lambda x, module=module: module(x)[0]}
            row = {"benchmark": "memory", "cell": name, "rival": f"cuDNN {kind.__name__}", "time": time}
            for who, way in ways.items():
                way(inputs).sum().backward()
                saved, peak = memory_of(way, inputs)
                row |= {f"{who} saved MB": round(saved), f"{who} peak MB": round(peak)}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--cells", default=",".join(CELLS))
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(1)
    action = on_cpu if arguments.device == "cpu" else memory if arguments.memory else on_gpu
    action(arguments.cells.split(","))
