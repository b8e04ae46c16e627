"""Tokens per second of decoding.cache=static beside dynamic and Hugging Face's generate, on a GPU where there is one.

python benchmarks/generation_static.py                            on a GPU: 1, 64 and 1,024 sentences greedy, 64 with beam 5
python benchmarks/generation_static.py --models small --cells 1x1 one model, one cell (beam x sentences)
python benchmarks/generation_static.py --only static static-bf16  these systems alone (ratios if dynamic is among them)

Random weights; 25 source words and 25 steps for each output, so the work is equal. On a CPU float32 and CPU time of one thread;
on a GPU also bfloat16 weights (`-bf16`), and wall time. Systems in turn, medians, after two rounds that are not counted: graphs
are recorded there. One JSON row for each system; `ratio` is its rate beside that of our search with cache=dynamic in float32.
"""

import argparse
import importlib.util
import json
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from generation import LENGTH, MODELS, Run, hugging_face

from regard.data.fields import texts
from regard.data.tokenizers import CharacterTokenizer
from regard.decoding.generator import TrainedGenerator
from regard.models import build, configure
from regard.models.directory import Bundle
from regard.nn.allocator import keep_freed_memory
from regard.recipe import Decoding

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CELLS = {"cuda": ["1x1", "1x64", "1x1024", "5x64"], "cpu": ["1x1", "1x16", "1x64", "5x16"]}
TYPES = {"cuda": {"": torch.float32, "-bf16": torch.bfloat16}, "cpu": {"": torch.float32}}


def ours(trained: TrainedGenerator, cache: str) -> Run:
    """Outputs of 24 words and their end, or of 25."""

    def run(rows: list[list[int]], beam: int) -> None:
        settings = Decoding(beam=beam, cache=cache, min_length=LENGTH - 1, max_length=LENGTH, batch_tokens=1 << 20)
        found = trained.search_batch(rows, settings)
        assert all(len(one.tokens) >= LENGTH - 1 for each in found for one in each)

    return run


def systems(name: str, rival: bool) -> dict[str, Run]:
    (values, vocabulary), found = MODELS[name], dict[str, Run]()
    for suffix, dtype in TYPES[DEVICE].items():
        torch.manual_seed(7)
        model = build(configure(values), vocabulary, vocabulary).eval().requires_grad_(False)
        fields = texts(CharacterTokenizer(["a"]), CharacterTokenizer(["a"]))
        trained = TrainedGenerator(Bundle(model.to(dtype), fields, Decoding()), DEVICE)
        for cache in ("dynamic", "static"):
            found[cache + suffix] = ours(trained, cache)
        if rival and name != "recurrent":
            found["transformers" + suffix] = hugging_face(values, vocabulary, DEVICE, dtype)
    return found


def clock() -> float:
    if DEVICE == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def rates(runs: dict[str, Run], rows: list[list[int]], beam: int, rounds: int) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds + 2):
        for name, run in runs.items():
            begin = clock()
            run(rows, beam)
            if number >= 2:
                taken[name].append(clock() - begin)
    return {name: len(rows) * LENGTH / statistics.median(each) for name, each in taken.items()}


def main(models: list[str], cells: list[str], rounds: int, only: list[str]) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    for name in models:
        runs = systems(name, importlib.util.find_spec("transformers") is not None)
        runs = {who: run for who, run in runs.items() if not only or who in only}
        for cell in cells:
            beam, count = map(int, cell.split("x"))
            rows = torch.randint(10, MODELS[name][1], (count, LENGTH)).tolist()
            found = rates(runs, rows, beam, rounds)
            for who, rate in found.items():
                row = {"benchmark": "generation_static", "device": DEVICE, "model": name, "beam": beam, "sentences": count}
                row |= {"who": who, "tokens_per_s": round(rate), "ratio": round(rate / found.get("dynamic", rate), 2)}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--cells", nargs="+", default=CELLS[DEVICE], metavar="BEAMxSENTENCES")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], metavar="SYSTEM")
    given = parser.parse_args()
    main(given.models, given.cells, given.rounds, given.only)
