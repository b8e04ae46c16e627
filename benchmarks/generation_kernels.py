"""Which kernels a search with decoding.cache=static spends a GPU's time in: for each cell a JSON row of the whole and one for
each of the fifteen kernels that take longest.

python benchmarks/generation_kernels.py                     the base Transformer in bfloat16
python benchmarks/generation_kernels.py --cells 5x64        one cell (beam x sentences)
"""

import argparse
import json
import sys
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


def profiled(run, rows: list[list[int]], beam: int) -> list[dict]:
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
    whole = {"ms": round(wall * 1e3, 3), "ms_of_kernels": round(total / 1e3, 3), "kernels_a_step": round(count / LENGTH, 1)}
    return [whole, *map(told, sorted(events, key=lambda one: -one.self_device_time_total)[:15])]


def told(one) -> dict:
    spent = one.self_device_time_total
    return {"kernel": one.key[:90], "ms": round(spent / 1e3, 3), "count": one.count, "us_each": round(spent / one.count, 1)}


def main(model: str, cells: list[str]) -> None:
    keep_freed_memory()
    run = ours(in_use(model), "static")
    for cell in cells:
        beam, count = map(int, cell.split("x"))
        rows = torch.randint(10, MODELS[model][1], (count, LENGTH)).tolist()
        for row in profiled(run, rows, beam):
            print(json.dumps({"benchmark": "generation_kernels", "model": model, "cell": cell, **row}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="base", choices=list(MODELS))
    parser.add_argument("--cells", nargs="+", default=CELLS["cuda"], metavar="BEAMxSENTENCES")
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("kernels of a GPU are timed here, and there is none")
    main(given.model, given.cells)
