"""Additive attention, forward and both ways, against the plain formula, eager and compiled; memory; a long sequence.

python benchmarks/attention_additive.py    on a GPU: batch 64, 512 queries and keys, size 512, bfloat16 (eager takes 49 GB)
"""

import json
from collections.abc import Callable

import torch
from timing import race, report
from torch import Tensor

from regard.nn.kernels.attention.additive import additive_attention

Attention = Callable[..., Tensor]


def plain(query: Tensor, keys: Tensor, score_vector: Tensor, values: Tensor) -> Tensor:
    """softmax(v · tanh(q + k)) values"""
    scores = torch.tanh(query[:, :, :, None] + keys[:, :, None]) @ score_vector[:, None, :, None]
    return scores.squeeze(-1).softmax(-1) @ values


def ours(query: Tensor, keys: Tensor, score_vector: Tensor, values: Tensor) -> Tensor:
    return additive_attention(query, keys, score_vector, values)[0]


def some_inputs(batch: int, time: int, size: int) -> list[Tensor]:
    shapes = [(batch, 1, time, size), (batch, 1, time, size), (1, size), (batch, 1, time, size)]
    inputs = [torch.randn(shape, device="cuda") for shape in shapes]
    inputs[2] /= size**0.5
    return [one.bfloat16().requires_grad_() for one in inputs]


def forward(attention: Attention, inputs: list[Tensor]) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            attention(*inputs)
        torch.cuda.synchronize()

    return run


def both_ways(attention: Attention, inputs: list[Tensor]) -> Callable[[], None]:
    gradient = torch.randn_like(inputs[3])

    def run() -> None:
        torch.autograd.grad(attention(*inputs), inputs, gradient)
        torch.cuda.synchronize()

    return run


def peak_of(run: Callable[[], None]) -> float:
    """GB at the peak of a run, its inputs included."""
    torch.cuda.reset_peak_memory_stats()
    run()
    return round(torch.cuda.max_memory_allocated() / 1e9, 3)


def main(batch: int = 64, time: int = 512, size: int = 512, long: int = 8192) -> None:
    inputs, facts = some_inputs(batch, time, size), {"batch": batch, "time": time, "size": size}
    ways = {"ours": ours, "eager": plain, "compiled": torch.compile(plain)}
    for direction in (forward, both_ways):
        rivals = {name: direction(way, inputs) for name, way in ways.items()}
        medians = race(rivals, rounds=7)
        peaks = {name: peak_of(run) for name, run in rivals.items()}
        for rival in list(ways)[1:]:
            memory = {"peak_GB": peaks["ours"], "rival_peak_GB": peaks[rival]}
            report("additive attention", "ours", rival, medians, direction=direction.__name__, **facts, **memory)
    run = both_ways(ours, some_inputs(1, long, size))
    seconds = race({"ours": run}, rounds=3)["ours"]
    row = {"benchmark": "additive attention", "direction": "both_ways", "batch": 1, "time": long, "size": size}
    print(json.dumps(row | {"ms": round(seconds * 1e3, 3), "peak_GB": peak_of(run)}), flush=True)


if __name__ == "__main__":
    torch.manual_seed(1)
    main()
