"""How far what `regard train` chooses is from the best of a grid, on data sets of many kinds.

    REGARD_DATA=../shared/data python benchmarks/choices.py --sets codes cmudict800 --grid 12 --rows 500

For each set: a JSON row for each point of the grid (all have the updates and the batches of the chosen recipe), and one with
the regret: the chosen recipe's score on test rows over the best score of all. Without a grid: the chosen recipe alone.
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
from pathlib import Path
from typing import Any

import torch

from regard import run
from regard.choices import choose_recipe
from regard.choices.model import recurrent, transformer
from regard.decoding.load import load
from regard.evaluation.metrics import METRICS
from regard.overrides import override
from regard.recipe import Recipe, parse

Rows = list[tuple[str, str]]
DATA = Path(os.environ.get("REGARD_DATA", "../shared/data"))
LANGUAGES = [
    "arabic", "czech", "english", "finnish", "french", "georgian", "german", "hebrew", "hungarian", "navajo", "russian",
    "spanish", "turkish",
]  # fmt: skip


def lines(name: str) -> list[str]:
    content = (DATA / name).read_bytes()
    return (gzip.decompress(content) if name.endswith(".gz") else content).decode().split("\n")[:-1]


def parallel(pattern: str, sides: tuple[str, str], train: str, test: str) -> dict[str, Rows]:
    """Two files a split; those of the training rows may be packed."""

    def split(name: str) -> Rows:
        source, target = (lines(pattern.format(name, side)) for side in sides)
        return list(zip(source, target, strict=True))

    return {"train": split(train), "test": split(test)}


def pronunciations(most: int | None = None) -> dict[str, Rows]:
    def rows(name: str) -> Rows:
        return [(word, one) for line in lines(name) for word, all_ in [line.split("\t")] for one in all_.split(" | ")]

    train = rows("cmudict/train.tsv.gz")
    random.Random(1).shuffle(train)
    return {"train": train[:most], "test": rows("cmudict/test.tsv.gz")}


def inflections(size: str, language: str) -> dict[str, Rows]:
    """Letters and tags, with spaces between them; the form in letters."""

    def spaced(word: str) -> str:
        return " ".join("_" if letter == " " else letter for letter in word)

    def rows(name: str) -> Rows:
        parts = [line.split("\t") for line in lines(f"sigmorphon2017/{language}-{name}") if line]
        return [(f"{spaced(lemma)} {tags.replace(';', ' ')}", spaced(form)) for lemma, form, tags in parts]

    return {"train": rows(f"train-{size}" + (".gz" if size == "high" else "")), "test": rows("test")}


def codes() -> dict[str, Rows]:
    """Made up: `KLM 417 red` -> `KLM-00417-R`."""
    chance = random.Random(5)

    def one() -> tuple[str, str]:
        name = "".join(chance.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(chance.randint(2, 3)))
        number, colour = chance.randint(1, 9999), chance.choice(["red", "blue", "green", "black"])
        return f"{name} {number} {colour}", f"{name}-{number:05d}-{colour[0].upper()}"

    rows = sorted({one() for _ in range(1000)})
    chance.shuffle(rows)
    return {"train": rows[:500], "test": rows[500:800]}


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
        yield f"{cut}, {kind}", with_keys({**chosen, "data": data, "model": model}, words)


def with_keys(values: dict[str, Any], words: dict[str, Any]) -> dict[str, Any]:
    found = json.loads(json.dumps(values))
    for key, value in words.items():
        *path, last = key.split(".")
        section = found
        for part in path:
            section = section.setdefault(part, {})
        section[last] = value
    return override(found, [])


def trained(values: dict[str, Any], files: dict[str, Any], test: Rows, score: str, folder: Path) -> dict[str, Any]:
    """One run, judged on rows that it never saw; several right answers of one source are all right."""
    values["data"]["train"] = files
    started = time.monotonic()
    run.train(parse(Recipe, values), folder, talk=False)
    seconds, model = time.monotonic() - started, load(folder)
    answers: dict[str, list[str]] = {}
    for source, target in test:
        answers.setdefault(source, []).append(target)
    outputs = model.generate(list(answers))
    if score == "exact":
        value = 100 * statistics.mean(output in right for output, right in zip(outputs, answers.values(), strict=True))
    else:
        value = METRICS[score].function(outputs, [right[:1] for right in answers.values()]).value
    parameters = sum(one.numel() for one in model.model.parameters())
    return {"score": round(value, 2), "seconds": round(seconds), "parameters": parameters}


def tried(name: str, number: int, rows: int | None, overrides: list[str]) -> None:
    make, score = SETS[name]
    found = make()
    with tempfile.TemporaryDirectory() as folder:
        files, test = put(found["train"], Path(folder) / "train.jsonl"), found["test"][:rows]
        points = list(grid(choose_recipe(files).values, number))
        scores = {}
        for index, (point, values) in enumerate(points):
            row = {"benchmark": "choices", "set": name, "point": point, "by": score}
            try:
                row |= trained(override(values, overrides), files, test, score, Path(folder) / f"run-{index}")
                scores[point] = row["score"]
            except Exception as error:  # a point of the grid that cannot be trained is told, and the others go on
                row["error"] = str(error)[:200]
            print(json.dumps(row), flush=True)
    if len(scores) > 1:
        best = max(scores, key=scores.__getitem__)
        ratio = round(scores["chosen"] / max(scores[best], 1e-9), 3)
        print(json.dumps({"benchmark": "choices", "set": name, "best": best, "of": len(scores), "ratio": ratio}), flush=True)


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
SETS: dict[str, tuple[Callable[[], dict[str, Rows]], str]] = {
    "codes": (codes, "exact"),
    "cmudict800": (lambda: pronunciations(800), "exact"),
    "cmudict": (pronunciations, "exact"),
    "scan": (lambda: parallel("scan/simple.{}.{}.gz", ("in", "out"), "train", "test"), "exact"),
    "conala": (lambda: parallel("conala/{}.{}", ("nl", "code"), "train", "test"), "bleu_as_cut"),
    "tatoeba": (
        lambda: {
            "train": parallel("tatoeba_de-en/{}.{}.gz", ("de", "en"), "train", "train")["train"],
            "test": parallel("tatoeba_de-en/{}.{}", ("de", "en"), "test", "test")["test"],
        },
        "bleu",
    ),
    "multi30k": (lambda: parallel("multi30k/raw/{}.{}.gz", ("de", "en"), "train", "test_2016_flickr"), "bleu"),
    **{
        f"sigmorphon-{size}-{language}": (lambda size=size, language=language: inflections(size, language), "exact")
        for size in ("low", "medium", "high")
        for language in LANGUAGES
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=["codes", "cmudict800"], choices=list(SETS), metavar="SET")
    parser.add_argument("--grid", type=int, default=0, help="points beside the chosen one")
    parser.add_argument("--rows", type=int, help="test rows to score")
    parser.add_argument("--threads", type=int, help="of torch")
    parser.add_argument("overrides", nargs="*", help="key.path=value, for all points (after --)")
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    for name in given.sets:
        tried(name, given.grid, given.rows, given.overrides)


if __name__ == "__main__":
    sys.exit(main())
