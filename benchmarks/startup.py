"""From the start of `regard generate` to the first output on a CPU, and what memory it takes at most.

python benchmarks/startup.py                 a small and a base Transformer, float32 and int8, beside `import torch` alone
python benchmarks/startup.py --repeats 3 --models small

Random weights. Each process is new, has one thread and answers one sentence, or 16 with a beam; they take turns. `cpu_s` is its
processor time, `wall_s` the clock's (which other programs on the machine lengthen); both are medians. `peak_mb` is the most
memory that was resident, in 2^20 bytes, libraries included. Python compiles its modules in a first round that is not counted.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

SIZES = {"small": (3, 256, 1024, 4, 8000), "base": (6, 512, 2048, 8, 32000)}  # layers, sizes, heads, words
LENGTH = 25  # words of the sentence, and of its output
VARIANTS = {"greedy": (1, ()), "16 x beam 5": (16, ("beam=5",))}  # sentences, settings
GENERATE = "from regard.cli import main; main()"


class Taken(NamedTuple):
    wall_s: float
    cpu_s: float
    peak_mb: float


def stored(name: str, folder: Path) -> dict[str, Path]:
    """Model directories of random weights, by their precision. In a process of its own: this one has to stay small, for what is
    resident when a process is made counts as the new one's."""
    from regard.data.fields import texts
    from regard.data.tokenizers import WordTokenizer
    from regard.models import build, configure
    from regard.models.directory import save_model, store_rounded
    from regard.recipe import Decoding, Recipe

    layers, size, inner, heads, words = SIZES[name]
    side = {
        "kind": "transformer",
        "layers": layers,
        "hidden_size": size,
        "feedforward_size": inner,
        "attention": {"heads": heads},
    }
    values = {"share_embeddings": True, "encoder": side, "decoder": {**side, "cross_attention": {"heads": heads}}}
    tokenizer = WordTokenizer([f"w{number}" for number in range(words - 4)])
    config = configure(values)
    weights = {key: one.clone() for key, one in build(config, len(tokenizer), len(tokenizer)).state_dict().items()}
    limits = Decoding(beam=1, min_length=LENGTH - 1, max_length=LENGTH)
    recipe = Recipe(model=config.model_dump(mode="json"), decoding=limits)
    save_model(folder / "float32", weights, recipe, texts(tokenizer, tokenizer), "random weights")
    store_rounded(folder / "float32", folder / "int8", "int8", "")
    return {precision: folder / precision for precision in ("float32", "int8")}


def taken(code: str, words: tuple[str, ...], lines: int, environment: dict[str, str]) -> Taken:
    given = "\n".join([" ".join(f"w{17 * place}" for place in range(LENGTH))] * lines) + "\n"
    begin, process = time.perf_counter(), subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=environment, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(given)
    process.stdin.close()
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0
    assert not words or output.count("\n") == lines
    return Taken(time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main(models: list[str], repeats: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as users have it
        cases = {("", "", "import torch"): ("import torch", (), 0)}
        for name in models:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:
                paths = apart.submit(stored, name, Path(folder, name)).result()
            for precision, path in paths.items():
                for variant, (lines, settings) in VARIANTS.items():
                    words = ("generate", str(path), "--processes", "1", *settings)
                    cases[name, precision, variant] = GENERATE, words, lines
        found: dict[tuple[str, ...], list[Taken]] = {case: [] for case in cases}
        for _ in range(repeats + 1):
            for case, given in cases.items():
                found[case].append(taken(*given, environment))
        for (name, precision, variant), each in found.items():
            medians = (round(statistics.median(column), 2) for column in zip(*each[1:], strict=True))
            facts = {"benchmark": "startup", "model": name, "precision": precision, "what": variant}
            print(json.dumps(facts | dict(zip(Taken._fields, medians, strict=True))), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    main(given.models, given.repeats)
