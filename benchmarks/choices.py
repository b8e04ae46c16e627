"""How far what `regard train` chooses is from the best of a grid, on data sets of many kinds.

    REGARD_DATA=../shared/data python benchmarks/choices.py --sets codes cmudict800 --grid 12 --rows 500 --jobs 2

For each set: a JSON row for each point of the grid (all have the updates and the batches of the chosen recipe), and one with
the regret: the chosen recipe's score on test rows over the best score of all. Without a grid: the chosen recipe alone. A row
has the seconds that training took, and how many of them had passed at the first validation within a tenth of the last score;
and the same in seconds of a processor, where other programs ran beside.
"""

import argparse
import gzip
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard import run
from regard.choices import choose_recipe
from regard.choices.model import recurrent, transformer
from regard.decoding.load import load
from regard.evaluation.metrics import METRICS
from regard.overrides import override
from regard.recipe import Recipe, parse
from regard.training.callbacks import Callbacks

Rows = list[tuple[str, str]]
Splits = dict[str, Rows]  # train and test; valid where the data set has such rows
DATA = Path(os.environ.get("REGARD_DATA", "../shared/data"))
LANGUAGES = [
    "arabic", "czech", "english", "finnish", "french", "georgian", "german", "hebrew", "hungarian", "navajo", "russian",
    "spanish", "turkish",
]  # fmt: skip


def lines(name: str) -> list[str]:
    """Of a file that may be packed."""
    path = DATA / name
    content = path.read_bytes() if path.exists() else gzip.decompress((DATA / f"{name}.gz").read_bytes())
    return content.decode().split("\n")[:-1]


def parallel(pattern: str, sides: tuple[str, str], **splits: str) -> Splits:
    """Two files a split."""

    def split(name: str) -> Rows:
        source, target = (lines(pattern.format(name, side)) for side in sides)
        return list(zip(source, target, strict=True))

    return {name: split(file) for name, file in splits.items()}


def pronunciations(most: int | None = None) -> Splits:
    def rows(name: str) -> Rows:
        pairs = [line.split("\t") for line in lines(f"cmudict/{name}.tsv")]
        return [(word, one) for word, variants in pairs for one in variants.split(" | ")]

    train = rows("train")
    random.Random(1).shuffle(train)
    return {"train": train[:most], "test": rows("test"), **({} if most else {"valid": rows("dev")})}


def inflections(size: str, language: str) -> Splits:
    """Letters and tags, with spaces between them; the form in letters."""

    def spaced(word: str) -> str:
        return " ".join("_" if letter == " " else letter for letter in word)

    def rows(name: str) -> Rows:
        parts = [line.split("\t") for line in lines(f"sigmorphon2017/{language}-{name}") if line]
        return [(f"{spaced(lemma)} {tags.replace(';', ' ')}", spaced(form)) for lemma, form, tags in parts]

    return {"train": rows(f"train-{size}"), "valid": rows("dev"), "test": rows("test")}


def first(splits: Splits, rows: int) -> Splits:
    """Fewer training rows, and as few of the others as are quickly read."""
    return {name: some[: rows if name == "train" else 500] for name, some in splits.items()}


def codes() -> Splits:
    """Made up: `KLM 417 red` -> `KLM-00417-R`."""
    chance = random.Random(5)

    def one() -> tuple[str, str]:
        name = "".join(chance.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(chance.randint(2, 3)))
        number, colour = chance.randint(1, 9999), chance.choice(["red", "blue", "green", "black"])
        return f"{name} {number} {colour}", f"{name}-{number:05d}-{colour[0].upper()}"

    rows = sorted({one() for _ in range(1000)})
    chance.shuffle(rows)
    return {"train": rows[:500], "test": rows[500:800]}


NUMERALS = {
    1000: "M", 900: "CM", 500: "D", 400: "CD", 100: "C", 90: "XC", 50: "L", 40: "XL", 10: "X", 9: "IX", 5: "V", 4: "IV", 1: "I",
}  # fmt: skip


def numerals() -> Splits:
    """`1994` -> `MCMXCIV`, for all numbers below 4,000: the largest that fits is written again and again."""

    def roman(number: int) -> str:
        value = next((value for value in NUMERALS if value <= number), 0)
        return NUMERALS[value] + roman(number - value) if value else ""

    rows = [(str(number), roman(number)) for number in range(1, 4000)]
    random.Random(4).shuffle(rows)
    return {"train": rows[:3000], "test": rows[3000:]}


def put(rows: Rows, path: Path) -> dict[str, Any]:
    path.write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in rows if a.strip() and b.strip()))
    return {"pairs": str(path)}


def grid(chosen: dict[str, Any], number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The chosen recipe, then others: tokens x models, all of them with its updates and batches."""
    yield "chosen", chosen
    points = [(cut, kind) for cut in CUTS for kind in KINDS]
    for cut, kind in points[:number]:
        words = {**CUTS[cut], **KINDS[kind]}
        data = {key: value for key, value in chosen["data"].items() if key != "fields" or cut == "as chosen"}
        model = {key: value for key, value in chosen["model"].items() if key != "share_embeddings"}
        training = {key: value for key, value in chosen["training"].items() if key != "made_up_stems"}  # they go with copying
        yield f"{cut}, {kind}", override({**chosen, "data": data, "model": model, "training": training}, words)


def trained(values: dict[str, Any], files: dict[str, Any], test: Rows, score: str, folder: Path) -> dict[str, Any]:
    """One run, judged on rows that it never saw; several right answers of one source are all right."""
    values["data"] |= files
    recipe, started, seen = parse(Recipe, values), clocks(), list[tuple[Clocks, float]]()
    by = METRICS[recipe.training.validate_by or "loss"]

    def watch(step: int, scores: dict[str, float]) -> None:
        seen.append((since(started), by.rank(scores[recipe.training.validate_by or "loss"])))

    run.train(recipe, folder, talk=False, callbacks=Callbacks(on_validation=watch))
    took, near, model = since(started), near_the_end(seen), load(folder)
    answers: dict[str, list[str]] = {}
    for source, target in test:
        answers.setdefault(source, []).append(target)
    outputs = model.generate(list(answers))
    if score == "exact":
        value = 100 * statistics.mean(output in right for output, right in zip(outputs, answers.values(), strict=True))
    else:
        value = METRICS[score].function(outputs, [right[:1] for right in answers.values()]).value
    parameters = sum(one.numel() for one in model.model.parameters())
    told = {"score": round(value, 2), "seconds": round(took.wall), "seconds_to_near": round(near.wall)}
    told |= {"cpu_seconds": round(took.processor), "cpu_seconds_to_near": round(near.processor)}
    return {**told, "parameters": parameters, "validations": len(seen)}


class Clocks(NamedTuple):
    wall: float
    processor: float


def clocks() -> Clocks:
    return Clocks(time.monotonic(), time.process_time())


def since(started: Clocks) -> Clocks:
    now = clocks()
    return Clocks(now.wall - started.wall, now.processor - started.processor)


def near_the_end(seen: list[tuple[Clocks, float]]) -> Clocks:
    """When the first validation was within a tenth of the best. An error rate, whose rank is below 0, counts as what it leaves
    of 100."""
    scores = [rank if rank > 0 else 100 + rank for _, rank in seen]
    return next(when for (when, _), score in zip(seen, scores, strict=True) if score >= 0.9 * max(scores))


def tried(job: tuple[str, str, dict[str, Any], int | None, int | None]) -> dict[str, Any]:
    """One point of a grid."""
    name, point, values, rows, threads = job
    if threads:
        torch.set_num_threads(threads)
    make, score = SETS[name]
    row = {"benchmark": "choices", "set": name, "point": point, "by": score}
    with tempfile.TemporaryDirectory() as folder:
        found = make()
        files = {split: put(found[split], Path(folder) / f"{split}.jsonl") for split in ("train", "valid") if split in found}
        try:
            return row | trained(values, files, found["test"][:rows], score, Path(folder) / "run")
        except Exception as error:  # a point that cannot be trained is told, and the others go on
            return row | {"error": f"{type(error).__name__}: {error}"[:200]}


def points_of(name: str, number: int, overrides: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        files = put(SETS[name][0]()["train"], Path(folder) / "train.jsonl")
        for point, values in grid(choose_recipe(files).values, number):
            yield point, override(values, overrides)


def compare(sets: list[str], number: int, rows: int | None, threads: int | None, jobs: int, overrides: list[str]) -> None:
    """All points of all sets, `jobs` of them at a time."""
    scores: dict[str, dict[str, float]] = {name: {} for name in sets}
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=1) as pool:
        asked = [(name, *point, rows, threads) for name in sets for point in points_of(name, number, overrides)]
        for done in as_completed([pool.submit(tried, job) for job in asked]):
            row = done.result()
            print(json.dumps(row), flush=True)
            if "score" in row:
                scores[row["set"]][row["point"]] = row["score"]
    ratios = []
    for name, found in scores.items():
        if len(found) > 1 and "chosen" in found:
            best = max(found, key=found.__getitem__)
            ratios.append(round(found["chosen"] / max(found[best], 1e-9), 3))
            row = {"benchmark": "choices", "set": name, "best": best, "of": len(found), "ratio": ratios[-1]}
            print(json.dumps(row), flush=True)
    if ratios:
        print(json.dumps({"benchmark": "choices", "median": statistics.median(ratios), "worst": min(ratios)}), flush=True)


CUTS: dict[str, dict[str, Any]] = {
    "as chosen": {},
    "characters": {"data.tokenizer": {"kind": "character", "size": 8000}},
    "words": {"data.tokenizer": {"kind": "word", "size": 8000}},
    "subwords": {"data.tokenizer": {"kind": "bpe", "size": 1000}},
}
KINDS: dict[str, dict[str, Any]] = {
    "GRU of 128": recurrent("gru", 64, 128, 1, 0.3),
    "GRU of 256": recurrent("gru", 128, 256, 1, 0.3),
    "Transformer of 128": transformer(128, 512, 2, 4, 0.2),
}
SETS: dict[str, tuple[Callable[[], Splits], str]] = {
    "codes": (codes, "exact"),
    "numerals": (numerals, "exact"),
    "cmudict800": (lambda: pronunciations(800), "exact"),
    "cmudict5000": (lambda: pronunciations(5_000), "exact"),
    "cmudict": (pronunciations, "exact"),
    "aeslc": (
        lambda: parallel("aeslc/{}.{}", ("body", "subject"), train="train", valid="dev", test="test"), "rougeL",
    ),
    "scan-length": (lambda: parallel("scan/length.{}.{}", ("in", "out"), train="train", test="test"), "exact"),
    "scan": (lambda: parallel("scan/simple.{}.{}", ("in", "out"), train="train", test="test"), "exact"),
    "django": (lambda: parallel("django/{}.{}", ("anno", "code"), train="train", valid="dev", test="test"), "exact"),
    "django4000": (
        lambda: first(parallel("django/{}.{}", ("anno", "code"), train="train", valid="dev", test="test"), 4_000), "exact",
    ),
    "conala": (lambda: parallel("conala/{}.{}", ("nl", "code"), train="train", test="test"), "bleu_as_cut"),
    "tatoeba": (lambda: parallel("tatoeba_de-en/{}.{}", ("de", "en"), train="train", valid="dev", test="test"), "bleu"),
    "multi30k": (
        lambda: parallel("multi30k/raw/{}.{}", ("de", "en"), train="train", valid="val", test="test_2016_flickr"), "bleu",
    ),
    "europarl": (lambda: parallel("europarl_de-en/{}.{}", ("de", "en"), train="train", valid="dev", test="test"), "bleu"),
    "sigmorphon500-german": (lambda: first(inflections("medium", "german"), 500), "exact"),
    "tatoeba2000": (
        lambda: first(parallel("tatoeba_de-en/{}.{}", ("de", "en"), train="train", valid="dev", test="test"), 2_000), "chrf",
    ),
    **{
        f"sigmorphon-{size}-{language}": (lambda size=size, language=language: inflections(size, language), "exact")
        for size in ("low", "medium", "high")
        for language in LANGUAGES
    },
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["codes", "cmudict800"], choices=list(SETS), metavar="SET")
    parser.add_argument("--grid", type=int, default=0, help="points beside the chosen one")
    parser.add_argument("--rows", type=int, help="test rows to score")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at a time")
    parser.add_argument("overrides", nargs="*", help="key.path=value, for all points (after --)")
    given = parser.parse_args()
    compare(given.sets, given.grid, given.rows, given.threads, given.jobs, given.overrides)


if __name__ == "__main__":
    sys.exit(main())
