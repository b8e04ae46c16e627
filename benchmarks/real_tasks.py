"""Real data by the clock: train a task's recipe for so many seconds, then score rows that no training has seen.

    REGARD_DATA=../shared/data python benchmarks/real_tasks.py django 290 RUN [KEY=VALUE ...]
    REGARD_DATA=../shared/data python benchmarks/real_tasks.py django together RUN RUN

Tasks: django, aeslc, formulas and wikitext2. A JSON row for each way of scoring, the quickest first: greedy search, the
recipe's beam, and for summaries the one of sixteen candidates that is most like the others. A language model is scored alone,
then with words that come again (`decoding/recent.py`; how sharply and how much is chosen on validation rows). `together`: what
several runs write as an ensemble. The outputs are kept in RUN/*.txt.
"""

import gzip
import itertools
import json
import math
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import by_the_clock
import numpy as np
from choices import DATA, lines

import regard
from regard.decoding import long_text
from regard.decoding.consensus import consensus
from regard.decoding.load import load
from regard.decoding.recent import Recent
from regard.evaluation.metrics import METRICS
from regard.evaluation.rouge import sentence_f

QUICK = 400  # validation rows that choose checkpoints
LEVELS = 7  # of ink in the images of formulas
START = time.monotonic()


class Task(NamedTuple):
    recipe: str
    names: str  # of the files: split and side
    sides: tuple[str, str]
    splits: tuple[str, str, str]
    metrics: tuple[str, ...]
    overrides: tuple[str, ...] = ()


TASKS = {
    "django": Task(
        "code-copy", "django/{}.{}", ("anno", "code"), ("train", "dev", "test"), ("exact",), ("decoding.batch_tokens=32768",)
    ),
    "aeslc": Task(
        "summaries-copy", "aeslc/{}.{}", ("body", "subject"), ("train", "dev", "test"), ("rougeL", "rouge1", "rouge2"),
        ("decoding.max_length=20", "decoding.batch_tokens=65536"),
    ),
    "formulas": Task(
        "formulas", "im2latex_small/{}.{}", ("images.npy", "formulas.txt"), ("train", "dev", "test"), ("exact", "wer")
    ),
}  # fmt: skip


def tell(**row: Any) -> None:
    print(json.dumps({**row, "after": round(time.monotonic() - START)}), flush=True)


def put(path: Path, rows: list[str]) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path


def side(task: Task, split: str, which: int, folder: Path, most: int | None) -> Path:
    """A column of a split as a file: texts, or images as bytes."""
    name = task.names.format(split, task.sides[which])
    if not name.endswith(".npy"):
        return put(folder / f"{split}.{which}", lines(name)[:most])
    with gzip.open(DATA / f"{name}.gz") as file:
        np.save(folder / f"{split}.npy", np.load(file)[:most] * np.uint8(255 // LEVELS))
    return folder / f"{split}.npy"


def files_of(task: Task, folder: Path) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    parts = zip(("train", "valid", "test"), task.splits, (None, QUICK, None), strict=True)
    return {
        f"{part}.{key}": side(task, split, which, folder, most)
        for part, split, most in parts
        for which, key in enumerate(("source", "target"))
    }


def train(task: Task, files: dict[str, Path], seconds: str, run: Path, overrides: list[str]) -> None:
    data = [f"data.{key}={path}" for key, path in files.items() if not key.startswith("test")]
    by_the_clock.main(seconds, str(run), task.recipe, *task.overrides, *data, *overrides)


def read(path: Path) -> list[str]:
    """Of images, their names."""
    if path.suffix == ".npy":
        return [f"{path}#{row + 1}" for row in range(len(np.load(path, mmap_mode="r")))]
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def score(task: Task, model: Any, files: dict[str, Path], run: Path, way: str, outputs: list[str]) -> None:
    right = [[one] for one in read(files["test.target"])]
    put(run / f"{way}.txt", [one.replace("\n", " ") for one in outputs])
    told = {name: round(METRICS[name].function(outputs, right).value, 2) for name in task.metrics}
    tell(run=str(run), way=way, rows=len(right), **told)


def judge(task: Task, model: Any, files: dict[str, Path], run: Path) -> None:
    sources = read(files["test.source"])
    score(task, model, files, run, "greedy", model.generate(sources, beam=1))
    score(task, model, files, run, "beam", model.generate(sources))
    if task.metrics[0].startswith("rouge"):
        found = model.search(sources, beam=16)
        alike = [consensus(each, sentence_f("L", False), sampled=False)[0].text for each in found]
        score(task, model, files, run, "consensus", alike)


def language_model(seconds: str, run: Path, overrides: list[str]) -> None:
    """WikiText-2: every word and every end of a row counts."""
    run.mkdir(parents=True, exist_ok=True)
    rows = {split: lines(f"wikitext2/wiki.{split}.tokens") for split in ("train", "valid", "test")}
    texts = {split: put(run.parent / f"{run.name}.{split}", part) for split, part in rows.items()}
    given = [f"data.train.text={texts['train']}", f"data.valid.text={texts['valid']}"]
    by_the_clock.main(seconds, str(run / "run"), "merity2018", *given, *overrides)
    model = load(run / "run")
    parameters = sum(one.numel() for one in model.model.parameters())
    tell(run=str(run), way="alone", parameters=parameters, **perplexity(model, rows["test"]))
    long_text.LANE = 1 << 10  # short lanes, side by side; each reads all that it looks back at before its own words
    few = rows["valid"][:300]
    tried = {}
    for sharpness, share in itertools.product((0.03, 0.1, 0.3, 1.0), (0.1, 0.2, 0.3)):
        model.recent = Recent(2000, sharpness, share)
        tried[model.recent] = perplexity(model, few)["word_perplexity"]
    model.recent = min(tried, key=tried.__getitem__)
    tell(run=str(run), way="recent words", recent=model.recent._asdict(), **perplexity(model, rows["test"]))


def perplexity(model: Any, rows: list[str]) -> dict[str, Any]:
    words = sum(len(row.split()) + 1 for row in rows)
    return {"words": words, "word_perplexity": round(math.exp(-sum(one.log_prob for one in model.score(rows)) / words), 2)}


def main(name: str, seconds: str, folder: str, *rest: str) -> None:
    run = Path(folder)
    if name == "wikitext2":
        return language_model(seconds, run, list(rest))
    task = TASKS[name]
    if seconds == "together":
        models = [load(Path(one) / "run") for one in (folder, *rest)]
        files = files_of(task, run / "together")
        return judge(task, regard.ensemble(models), files, run / "together")
    files = files_of(task, run)
    train(task, files, seconds, run / "run", list(rest))
    return judge(task, load(run / "run"), files, run)


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] not in (*TASKS, "wikitext2"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
