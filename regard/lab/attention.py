"""Which attention? One recipe, trained once for each entry of a table of the attention family, all else being equal."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

from regard.data.links import read_links
from regard.data.sealed import lock
from regard.decoding.load import load_generator
from regard.errors import UserError
from regard.evaluation.evaluate import evaluate, read_test
from regard.insight.curves import Bars, Picture, Series
from regard.lab.experiment import Report
from regard.lab.grids import Grid, shown, spread
from regard.lab.ledger import Ledger, agree, claim
from regard.lab.pace import pace
from regard.lab.systems import stop_with
from regard.nn.attention import SCOPES, SCORES, SELECTIONS
from regard.overrides import flatten, override
from regard.preparation import with_corpus
from regard.recipe import Pairs, Recipe, parse
from regard.run import train

PARTS: dict[str, Mapping[str, object]] = {"score": SCORES, "scope": SCOPES, "selection": SELECTIONS}
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
    stopped = train(recipe, run, resume=(run / "checkpoints").exists(), talk=False)
    stop_with(stopped)
    seconds = time.monotonic() - started
    whole = with_corpus(recipe, run)
    found = {f"{test} {score}": value for test, pairs in whole.data.test.items() for score, value in tested(run, pairs).items()}
    return {**found, **pace(whole, run), "seconds": round(seconds, 1)}


def tested(run: Path, pairs: Pairs) -> dict[str, float]:
    gold = None if pairs.alignment is None else read_links(pairs.alignment)
    trained = load_generator(run)
    scores, _ = evaluate(trained, read_test(pairs, trained.fields), gold)
    return {NAMES.get(score.name, score.name): round(score.value, 4) for score in scores}


def grid(rows: Sequence[Mapping[str, Any]], asked: Sequence[str] = ()) -> Grid:
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


def report(recipe: str, part: str, rows: Sequence[Mapping[str, Any]], asked: Sequence[str] = ()) -> Report:
    """The table, and its first two columns of quality as bars."""
    table, names = grid(rows, asked), list(dict.fromkeys(row["name"] for row in rows))
    columns = [key for key in table[0][1:] if key not in COST][:2]
    seeds = sorted({row["seed"] for row in rows})
    title = f"{recipe} with every {part}"
    note = f"seeds {', '.join(map(str, seeds))}; tokens/s and MB of training, seconds of the whole training"
    panels = [Bars(key, part, key, [Series(key, names, means(rows, names, key))]) for key in columns]
    return Report(title, table, notes=[note], pictures={"attention": Picture(title, panels, note)})


def means(rows: Sequence[Mapping[str, Any]], names: Sequence[str], key: str) -> list[float | None]:
    each = [[row[key] for row in rows if row["name"] == name and key in row] for name in names]
    return [mean(values) if values else None for values in each]
