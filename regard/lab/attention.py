"""Which attention? One recipe, trained once for each entry of a table of the attention family, all else being equal."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.links import read_links
from regard.data.sealed import lock
from regard.decoding.load import load_generator
from regard.evaluation.evaluate import evaluate, read_test
from regard.lab.ledger import Ledger, agree, claim
from regard.models import build, configure
from regard.models.device import choose_device
from regard.nn.attention import SCOPES, SCORES, SELECTIONS
from regard.overrides import flatten, override
from regard.preparation import prepare, with_corpus
from regard.recipe import Pairs, Recipe, parse
from regard.run import train
from regard.training.distributed import Group
from regard.training.feed import feed_of
from regard.training.loop import Trainer

PARTS: dict[str, Mapping[str, object]] = {"score": SCORES, "scope": SCOPES, "selection": SELECTIONS}
TIMED = 20  # updates whose speed is taken, after as many that are not
NAMES = {"alignment error_rate": "AER"}
ASIDE = ("chrF2", "loss", "perplexity", "precision", "recall", "parameters", "part")  # what is kept but not shown


def compare(values: dict[str, Any], part: str, names: Sequence[str], directory: Path) -> list[dict[str, Any]]:
    """Train, test and time the recipe with each entry; finished ones are kept."""
    claim(directory, "conditions.json")
    with lock(directory):
        agree(directory / "conditions.json", flatten({"part": part, **json.loads(json.dumps(values, default=str))}))
        ledger = Ledger(directory / "trials.jsonl", ("part", "name"))
        try:
            return [ledger.once({"part": part, "name": name}, partial(trial, values, part, name, directory)) for name in names]
        finally:
            ledger.close()


def trial(values: dict[str, Any], part: str, name: str, directory: Path) -> dict[str, Any]:
    recipe = parse(Recipe, override(values, [f"model.decoder.attention.{part}={name}"]))
    run, started = directory / name, time.monotonic()
    train(recipe, run, resume=(run / "checkpoints").exists(), talk=False)
    seconds = time.monotonic() - started
    whole = with_corpus(recipe, run)
    found = {f"{test} {score}": value for test, pairs in whole.data.test.items() for score, value in tested(run, pairs).items()}
    return {**found, **pace(whole, run), "seconds": round(seconds, 1)}


def tested(run: Path, pairs: Pairs) -> dict[str, float]:
    gold = None if pairs.alignment is None else read_links(pairs.alignment)
    trained = load_generator(run)
    scores, _ = evaluate(trained, read_test(pairs, trained.fields), gold)
    return {NAMES.get(score.name, score.name): round(score.value, 4) for score in scores}


def pace(recipe: Recipe, run: Path) -> dict[str, Any]:
    """Target tokens a second of whole updates, and the memory they take."""
    device, prepared = choose_device(recipe.training.device), prepare(recipe, run, lambda _: None)
    model = build(configure(recipe.model), *prepared.shapes).to(device)
    feed = feed_of(prepared.store, prepared.plan, model.writes, recipe.training)
    trainer = Trainer(model, feed, recipe.training, None, Group(0, 1, device), dict)
    update(trainer, range(TIMED))
    memory = peak(trainer, device)
    settle(device)
    started = time.perf_counter()
    tokens = update(trainer, range(TIMED))
    settle(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"tokens/s": round(tokens / (time.perf_counter() - started)), "MB": memory, "parameters": parameters}


def update(trainer: Trainer, steps: range) -> int:
    total = 0
    trainer.objective.train()
    for step in steps:
        rows = trainer.feed.rows(step)
        tokens = trainer.feed.tokens(rows)
        trainer.backward(rows, tokens, step)
        nn.utils.clip_grad_norm_(trainer.model.parameters(), trainer.clip)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad(set_to_none=True)
        total += tokens
    return total


def peak(trainer: Trainer, device: torch.device) -> int:
    """Megabytes: on a GPU the most that was allocated; on a CPU what is kept for the way back, of the batch that keeps most."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        update(trainer, range(TIMED))
        return int(torch.cuda.max_memory_allocated() / 2**20)
    batches = [trainer.batch(trainer.feed.rows(step), step) for step in range(4)]
    return max(kept(lambda batch=batch: trainer.objective(batch)) for batch in batches) // 2**20  # type: ignore[misc]


def kept(way: Callable[[], object]) -> int:
    """Bytes that are kept for the way back."""
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        way()
    return sum(sizes.values())


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def grid(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A header and a row for each entry; what an entry lacks stays empty."""
    columns = list(dict.fromkeys(key for row in rows for key in row if not key.endswith(ASIDE)))
    return [columns, *([shown(row.get(column, "")) for column in columns] for row in rows)]


def shown(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
