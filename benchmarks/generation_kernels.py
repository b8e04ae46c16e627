"""Which kernels a search with decoding.cache=static spends a GPU's time in: the fifteen that take longest, for each cell.

python benchmarks/generation_kernels.py                     the base Transformer in bfloat16
python benchmarks/generation_kernels.py --cells 5x64        one cell (beam x sentences)
"""

import argparse
import time

import torch
from generation import LENGTH, MODELS
from generation_static import CELLS, ours

from regard.data.fields import texts
from regard.data.tokenizers import CharacterTokenizer
from regard.decoding.generator import TrainedGenerator
from regard.models import build, configure
from regard.models.directory import Bundle
from regard.nn.allocator import keep_freed_memory
from regard.recipe import Decoding


def in_use(name: str) -> TrainedGenerator:
    torch.manual_seed(7)
    values, vocabulary = MODELS[name]
    model = build(configure(values), vocabulary, vocabulary).eval().requires_grad_(False).to(torch.bfloat16)
    fields = texts(CharacterTokenizer(["a"]), CharacterTokenizer(["a"]))
    return TrainedGenerator(Bundle(model, fields, Decoding()), "cuda")


def profiled(run, rows: list[list[int]], beam: int) -> str:
    for _ in range(4):
        run(rows, beam)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(3):
        run(rows, beam)
    torch.cuda.synchronize()
    wall = (time.perf_counter() - begin) / 3
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        run(rows, beam)
        torch.cuda.synchronize()
    events = [one for one in found.key_averages() if one.self_device_time_total > 0]
    total, count = sum(one.self_device_time_total for one in events), sum(one.count for one in events)
    lines = [f"{wall * 1e3:.2f} ms a run, {total / 1e3:.2f} ms of kernels, {count} kernels ({count / LENGTH:.0f} a step)"]
    lines += map(told, sorted(events, key=lambda one: -one.self_device_time_total)[:15])
    return "\n".join(lines)


def told(one) -> str:
    spent = one.self_device_time_total
    return f"{spent / 1e3:9.3f} ms {one.count:6d} x {spent / one.count:8.1f} us  {one.key[:90]}"


def main(model: str, cells: list[str]) -> None:
    keep_freed_memory()
    run = ours(in_use(model), "static")
    for cell in cells:
        beam, count = map(int, cell.split("x"))
        rows = torch.randint(10, MODELS[model][1], (count, LENGTH)).tolist()
        print(f"{model}, beam {beam} x {count} sentences: {profiled(run, rows, beam)}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="base", choices=list(MODELS))
    parser.add_argument("--cells", nargs="+", default=CELLS["cuda"], metavar="BEAMxSENTENCES")
    given = parser.parse_args()
    main(given.model, given.cells)
