"""From raw text to batches: speed beside SentencePiece alone, memory, padding, seeking. Prints one JSON row a line.

    REGARD_DATA=DIR python benchmarks/data.py

Every measurement runs in a process of its own, so that its memory is its own. Tokenizers are trained before the clock.
"""

import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from regard.data.batching import collate
from regard.data.fields import texts
from regard.data.lines import read_lines
from regard.data.plan import BatchPlan
from regard.data.readers import BadRows, read_rows
from regard.data.store import Store
from regard.data.tokenizers import Tokenizer, load_tokenizer, train_tokenizer
from regard.recipe import Pairs
from regard.recipe import Tokenizer as Section

BATCH_TOKENS = 4096
ROUNDS = 3
SIDES = ("de", "en")


def corpus(folder: Path) -> Pairs:
    return Pairs(source=folder / "train.de.gz", target=folder / "train.en.gz")


def megabytes(kind: str) -> float:
    """Of this process: VmHWM is its peak since its start (getrusage would count the parent's), RssAnon what it holds itself,
    RssFile pages of files, which are the system's as well."""
    status = Path("/proc/self/status").read_text().split("\n")
    return next(int(line.split()[1]) for line in status if line.startswith(kind)) / 1024


def tokenizers(scratch: Path) -> tuple[Tokenizer, Tokenizer]:
    return load_tokenizer(scratch / "de"), load_tokenizer(scratch / "en")


def train(data: Path, scratch: Path) -> dict[str, Any]:
    def lines(path: Path) -> Iterator[str]:
        found = itertools.chain.from_iterable(block.texts for block in read_lines(path))
        return itertools.islice(found, 40_000)

    for side in SIDES:
        train_tokenizer(Section(kind="unigram", size=8000), lines(data / f"train.{side}.gz")).save(scratch / side)
    return {}


def ours(data: Path, scratch: Path) -> dict[str, Any]:
    source, target = tokenizers(scratch)
    begin = time.perf_counter()
    store = Store.build(
        scratch / "store",
        corpus(data),
        texts(source, target),
        max_length=512,
        bad_rows=BadRows("stop"),
    )
    build_peak = megabytes("VmHWM")
    plan = BatchPlan(store.lengths("source"), store.lengths("target"), BATCH_TOKENS, seed=1)
    real = padded = 0
    for step in range(len(plan)):
        batch = collate(store, plan.batch(step))
        real += sum(int(column.lengths.sum()) for column in batch.columns.values())
        padded += sum(column.values.size for column in batch.columns.values())
    seconds = time.perf_counter() - begin
    memory = {"build_peak_mb": build_peak, "peak_mb": megabytes("VmHWM")}  # the second with all tokens mapped and read
    return {"pairs": len(store), "seconds": seconds, **memory, "padding": 1 - real / padded}


def rival(data: Path, scratch: Path) -> dict[str, Any]:
    """SentencePiece alone: all lines in memory, both sides encoded, nothing kept."""
    import sentencepiece

    models = [sentencepiece.SentencePieceProcessor(model_file=str(scratch / side / "pieces.model")) for side in SIDES]
    blocks = list(read_rows(corpus(data)))
    both = tuple([text for block in blocks for text in block.columns[side]] for side in ("source", "target"))
    begin = time.perf_counter()
    for model, lines in zip(models, both, strict=True):
        model.encode(lines, num_threads=os.cpu_count())
    return {"pairs": len(both[0]), "seconds": time.perf_counter() - begin, "peak_mb": megabytes("VmHWM")}


def epoch(data: Path, scratch: Path) -> dict[str, Any]:
    """All batches of a store that is there already: the memory of training's data, without that of building the store."""
    store, held = Store.open(scratch / "store"), {"anonymous_mb": 0.0, "of_files_mb": 0.0}
    plan = BatchPlan(store.lengths("source"), store.lengths("target"), BATCH_TOKENS, seed=1)
    for step in range(len(plan)):
        collate(store, plan.batch(step))
        if step % 100 == 0:
            held = {name: max(held[name], megabytes(kind)) for name, kind in zip(held, ("RssAnon", "RssFile"), strict=True)}
    return {"pairs": len(store), **held, "peak_mb": megabytes("VmHWM")}


def seek(data: Path, scratch: Path) -> dict[str, Any]:
    """To random steps of far epochs: from nothing but an open store, and in a plan that exists."""
    store = Store.open(scratch / "store")
    choice = random.Random(1)
    cold, warm = [], []
    for _ in range(5):
        begin = time.perf_counter()
        plan = BatchPlan(store.lengths("source"), store.lengths("target"), BATCH_TOKENS, seed=1)
        collate(store, plan.batch(choice.randrange(1_000_000)))
        cold.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        collate(store, plan.batch(choice.randrange(1_000_000)))
        warm.append(time.perf_counter() - begin)
    return {"pairs": len(store), "cold_seconds": max(cold), "warm_seconds": max(warm)}


def measure(part: str, data: Path, scratch: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, part, str(data), str(scratch)]
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(json.loads(result.stdout))


def speed(data: Path, scratch: Path) -> dict[str, Any]:
    rounds = [(measure("ours", data, scratch), measure("rival", data, scratch)) for _ in range(ROUNDS)]
    mine, other = (statistics.median(run[side]["pairs"] / run[side]["seconds"] for run in rounds) for side in (0, 1))
    rates = {"pairs_per_second": round(mine), "sentencepiece_alone": round(other), "ratio": round(mine / other, 3)}
    peaks = {key: max(run[0][key] for run in rounds) for key in ("build_peak_mb", "peak_mb")}
    return {**rates, **peaks, "padding": rounds[0][0]["padding"]}


def tenfold(data: Path, scratch: Path) -> Path:
    large = scratch / "tenfold"
    large.mkdir()
    for side in SIDES:
        content = (data / f"train.{side}.gz").read_bytes()
        with (large / f"train.{side}.gz").open("wb") as file:
            for _ in range(10):
                file.write(content)  # a .gz file may have many members
    return large


def show(name: str, values: dict[str, Any]) -> None:
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in values.items()}
    print(json.dumps({"benchmark": f"data/{name}", "cores": os.cpu_count(), **rounded}), flush=True)


def main() -> None:
    if "REGARD_DATA" not in os.environ:
        sys.exit("set REGARD_DATA to the folder that holds europarl_de-en")
    data = Path(os.environ["REGARD_DATA"]) / "europarl_de-en"
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        measure("train", data, scratch)
        show("text_to_batches", speed(data, scratch))
        show("epoch", measure("epoch", data, scratch))
        show("seek", measure("seek", data, scratch))
        large = tenfold(data, scratch)
        show("text_to_batches_tenfold", measure("ours", large, scratch))
        show("epoch_tenfold", measure("epoch", large, scratch))
        show("seek_tenfold", measure("seek", large, scratch))


PARTS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "train": train,
    "ours": ours,
    "rival": rival,
    "epoch": epoch,
    "seek": seek,
}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(PARTS[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))))
    else:
        main()
