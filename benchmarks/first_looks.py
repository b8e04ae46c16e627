"""What attention is asked in the first updates, and what comes of it: short pairs of the Canadian Hansards, English to French.

    REGARD_DATA=DIR python benchmarks/first_looks.py additive general cosine

For each score, without and with `training.frequencies`, one model; JSON rows of its checkpoints. `same`: how much of the states
that ask is the same at every step, |mean of s|² / mean of |s|². `flat`: the share of elements of W q + U k beyond ±2, where
tanh is flat (of scores with a network). `largest`: the mean largest weight. `error_rate`: of links in short test sentences.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from alignment import Hansards, show
from torch import Tensor

from regard.decoding.load import load_generator
from regard.evaluation.alignment import alignment_error_rate
from regard.models.directory import Reading
from regard.nn.attention.pairs import Network
from regard.recipe import Recipe, parse
from regard.run import train

LONGEST = {"train": 24, "test": 16}  # words


def recipe(hansards: Hansards, score: str, frequencies: bool, options: argparse.Namespace) -> Recipe:
    every, layer = options.every, {"cell": "gru", "embedding_size": 128, "dropout": 0.2}
    decoder = {**layer, "hidden_size": 256, "context": "after_cell"}
    attention = {"score": score, "temperature": options.temperature}
    values: dict[str, Any] = {
        "data": {
            "train": hansards.sides("train", "en-fr"), "valid": hansards.sides("dev", "en-fr"), "max_length": LONGEST["train"],
            "tokenizer": {"kind": "word", "size": 4000}, "batch_tokens": 2048,
        },
        "model": {"encoder": {**layer, "hidden_size": 128}, "decoder": {**decoder, "attention": attention}},
        "training": {
            "updates": options.updates, "learning_rate": options.learning_rate, "schedule": "cosine",
            "warmup": options.updates // 10, "validate_every": every, "save_every": every, "keep_last": 100, "patience": None,
            "frequencies": frequencies,
        },
    }  # fmt: skip
    return parse(Recipe, values)


def probe(model: Any, hansards: Hansards) -> dict[str, float]:
    rows = [
        row
        for row in zip(hansards.pairs("test"), hansards.gold("test"), strict=True)
        if len(row[0][0].split()) <= LONGEST["test"]
    ]
    attention, states, flat = model.model.decoder.attention, list[Tensor](), list[Tensor]()
    read = attention.read

    def watched(queries: Tensor, query: Tensor, prepared: Any, *rest: Any) -> Any:
        states.append(query.flatten(0, 1))
        if isinstance(attention.score.pair, Network):
            flat.append(((queries[:, :, :, None] + prepared.keys[:, :, None]).abs() > 2).float().mean())
        return read(queries, query, prepared, *rest)

    attention.read = watched
    found = model.align([pair for pair, _ in rows], Reading(head=None, shift=0))
    asked, largest = torch.cat(states), [max(*row, end) for one in found for row, end in zip(one.weights, one.end, strict=True)]
    told = {
        "same": float(asked.mean(dim=0).square().sum() / asked.square().sum(dim=1).mean()),
        "largest": sum(largest) / len(largest),
    }
    told["error_rate"] = alignment_error_rate([one.links for one in found], [gold for _, gold in rows]).error_rate
    return {**told, **({"flat": float(torch.stack(flat).mean())} if flat else {})}


def measure(hansards: Hansards, options: argparse.Namespace) -> None:
    for score in options.scores:
        for frequencies in (False, True):
            run, begin = hansards.scratch / f"{score}-{frequencies}", time.process_time()
            train(recipe(hansards, score, frequencies, options), run, talk=False)
            lost = [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]
            losses = {row["step"]: row["valid_loss"] for row in lost if "valid_loss" in row}
            for step, loss in losses.items():
                facts = probe(load_generator(run / "checkpoints" / f"step-{step:09d}", "cpu"), hansards)
                facts = {name: round(float(value), 3) for name, value in {"valid_loss": loss, **facts}.items()}
                show("first_looks", None, score=score, frequencies=frequencies, step=step, **facts)
            show("first_looks", None, score=score, frequencies=frequencies, seconds=round(time.process_time() - begin))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", nargs="*", default=["additive", "general", "cosine"], help="attention scores, by name")
    parser.add_argument("--updates", type=int, default=300)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=30_000)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--learning-rate", type=float, default=0.002)
    options = parser.parse_args()
    if "REGARD_DATA" not in os.environ:
        sys.exit("set REGARD_DATA to the folder that holds wordalign_gold")
    with tempfile.TemporaryDirectory() as folder:
        measure(Hansards(Path(os.environ["REGARD_DATA"]), Path(folder), options.pairs), options)


if __name__ == "__main__":
    main()
