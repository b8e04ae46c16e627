"""Which attention? One recipe, trained once for each entry of a table of the attention family, all else being equal."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn

from regard.data.links import read_links
from regard.data.sealed import lock
from regard.decoding.load import load_generator
from regard.errors import UserError
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
QUALITY = ("BLEU", "AER")  # what a table shows of each test set, unless it is asked for more
COST = ("tokens/s", "MB", "seconds")  # and of each entry
Say = Callable[[str], None]


def compare(
    values: dict[str, Any], part: str, names: Sequence[str], directory: Path, seeds: int = 1, say: Say = print
) -> list[dict[str, Any]]:
    """Train, test and time the recipe with each entry and each seed; finished trials are kept."""
    claim(directory, "conditions.json")
    first = parse(Recipe, values).training.seed
    trials = [(name, first + turn) for turn in range(seeds) for name in names]
    with lock(directory):
        agree(directory / "conditions.json", flatten({"part": part, **json.loads(json.dumps(values, default=str))}))
        ledger, rows = Ledger(directory / "trials.jsonl", ("part", "name")), list[dict[str, Any]]()
        try:
            for number, (name, seed) in enumerate(trials, start=1):
                key = name if seed == first else f"{name} seed {seed}"  # the first seed's rows are as they always were
                begin = partial(said_trial, values, part, name, seed, directory / key.replace(" ", "-"), say)
                say(f"{number} of {len(trials)}: {part} {name}, seed {seed}")
                rows.append({**ledger.once({"part": part, "name": key}, begin), "name": name, "seed": seed})
        finally:
            ledger.close()
    return rows


def said_trial(values: dict[str, Any], part: str, name: str, seed: int, run: Path, say: Say) -> dict[str, Any]:
    found = trial(values, part, name, seed, run)
    say("  " + "  ".join(f"{key} {shown(value)}" for key, value in found.items() if key.endswith((*QUALITY, *COST))))
    return found


def trial(values: dict[str, Any], part: str, name: str, seed: int, run: Path) -> dict[str, Any]:
    recipe = parse(Recipe, override(values, [f"model.decoder.attention.{part}={name}", f"training.seed={seed}"]))
    started = time.monotonic()
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
    """Megabytes: on a GPU the most that was allocated; on a CPU what the backward pass needs, of the batch that keeps most."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        update(trainer, range(TIMED))
        return int(torch.cuda.max_memory_allocated() / 2**20)
    batches = [trainer.batch(trainer.feed.rows(step), step) for step in range(4)]
    return max(kept(lambda batch=batch: trainer.objective(batch)) for batch in batches) // 2**20  # type: ignore[misc]


def kept(way: Callable[[], object]) -> int:
    """Bytes that are kept for the backward pass."""
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


def grid(rows: Sequence[Mapping[str, Any]], asked: Sequence[str] = ()) -> list[list[str]]:
    """A header and a row for each entry: mean ± standard deviation over its seeds. What an entry lacks stays empty."""
    wanted = tuple(asked) or QUALITY
    columns = [key for key in dict.fromkeys(key for row in rows for key in row) if is_shown(key, wanted)]
    if not any(column not in COST for column in columns):
        known = dict.fromkeys(key.partition(" ")[2] for row in rows for key in row if " " in key)
        raise UserError(f"no test set has {' or '.join(wanted)}; choose from {', '.join(known)}")
    by_name = {name: [row for row in rows if row["name"] == name] for name in dict.fromkeys(row["name"] for row in rows)}
    table = [[name, *(spread([row[key] for row in some if key in row]) for key in columns)] for name, some in by_name.items()]
    return [["name", *columns], *table]


def is_shown(key: str, wanted: Sequence[str]) -> bool:
    """Keys of scores begin with the name of their test set, which has no space."""
    return key in COST or key.partition(" ")[2] in wanted


def spread(values: Sequence[float]) -> str:
    """Of one seed the value; of several mean ± standard deviation."""
    if len(values) < 2:
        return "".join(map(shown, values))
    return f"{shown(mean(values))} ± {shown(stdev(values))}"


def shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
