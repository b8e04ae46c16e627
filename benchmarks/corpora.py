"""The recipes on generated data: how long each takes from nothing to its model, and what that reaches on test rows.

    python benchmarks/corpora.py ["RECIPE[;key.path=value ...]" ...] [--threads 2]

A JSON row for each, all recipes that name a corpus if none is named: seconds of the clock and of the CPU for the whole of
`regard train`, and every test set's score by the metric that decides on checkpoints. Models that point at images are judged by
`pointing` too; a language model of both sides is given the source, and its greedy continuation is compared with the target.
"""

import argparse
import json
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from regard import run
from regard.corpora import CORPORA, generate
from regard.data.boxes import read_boxes
from regard.decoding.load import load
from regard.evaluation.evaluate import applicable, evaluate, read_test
from regard.evaluation.metrics import METRICS
from regard.preparation import with_corpus
from regard.recipe import Recipe, built_in, read
from regard.run import metric_of


def of_corpora() -> list[str]:
    return [name for name in built_in() if read(name).data.corpus is not None]


def tried(name: str, overrides: list[str], threads: int) -> dict[str, Any]:
    recipe = read(name, [*overrides, f"training.threads={threads}"])
    with tempfile.TemporaryDirectory() as folder:
        clock, cpu = time.monotonic(), time.process_time()
        run.train(recipe, Path(folder) / "run", talk=False)
        taken = {"seconds": round(time.monotonic() - clock), "cpu_seconds": round(time.process_time() - cpu)}
        scores = judged(recipe, Path(folder) / "run")
    given = {"overrides": overrides} if overrides else {}
    return {"benchmark": "corpora", "recipe": name, **given, "threads": threads, **taken, **scores}


def judged(recipe: Recipe, directory: Path) -> dict[str, Any]:
    trained: Any = load(directory)
    scores: dict[str, Any] = {}
    for split, files in with_corpus(recipe, directory).data.test.items():
        rows = read_test(files, trained.fields)
        boxes = None if files.boxes is None else read_boxes(files.boxes, [row[-1] for row in rows])
        names = {metric_of(recipe), *(["pointing", "exact"] if "pointing" in applicable(trained, boxes=bool(boxes)) else [])}
        found = evaluate(trained, rows, names=sorted(names), boxes=boxes)[0]
        scores |= {f"{split} {one.name}": round(one.value, 2) for one in found}
    corpus = CORPORA[recipe.data.corpus.name] if recipe.data.corpus is not None else None
    if hasattr(trained, "continue_") and corpus is not None and corpus.joint is not None:
        scores |= {f"test {name}": value for name, value in continued(trained, recipe, corpus.joint).items()}
    return scores


def continued(trained: Any, recipe: Recipe, joint: str) -> dict[str, float]:
    """What a language model of both sides writes behind a source."""
    assert recipe.data.corpus is not None
    pairs = generate(CORPORA[recipe.data.corpus.name], recipe.data.corpus.seed, 1)["test"]
    found = trained.continue_([f"{pair.source}{joint}".rstrip() for pair in pairs], search=True, beam=1)
    outputs = [one[0].text.strip() for one in found]
    return {name: round(METRICS[name](outputs, [pair.target for pair in pairs]).value, 2) for name in ("exact", "bleu")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE[;key=value ...]")
    parser.add_argument("--threads", type=int, default=2, help="of torch")
    given = parser.parse_args()
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:  # each counts its own CPU time
        for words in given.recipes or of_corpora():
            name, *overrides = words.split(";")
            done = pool.submit(tried, name, overrides, given.threads).result()
            print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
