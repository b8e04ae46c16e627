"""The bottleneck of a fixed-size sentence vector: quality by the length of the source, with attention and without."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from regard.insight.curves import Lines, Picture, Series
from regard.lab.experiment import Asked, Experiment, Report, Row, Setting, of, smoke
from regard.lab.grids import spread
from regard.lab.systems import SMOKE, Examined, System, by_length, compete, count, recipe_of, scores, sized

ATTENDS = System("demo")
BLIND = System("demo", ["model.decoder.attention=null", "model.decoder.context=none"])
NAMES = ("attention", "none")
CLAIM = "the fixed-size vector is incapable of remembering long sentences; attention solves the bottleneck (001, 002, 003)"


def trial(asked: Asked, name: str, seed: int, run: Path) -> Row:
    """Without attention the decoder is made wider, until both have as many parameters."""
    budget = count(recipe_of(ATTENDS, asked))
    system = ATTENDS if name == "attention" else sized(BLIND, "model.decoder.hidden_size", budget, asked)
    return compete(system, asked, seed, run, judge)


def judge(tested: Examined) -> Row:
    return {**scores(tested, ["bleu", "loss"]), f"{tested.test} by length": by_length(tested)}


def report(asked: Asked, rows: list[Row]) -> Report:
    tests = [key.removesuffix(" by length") for key in rows[0] if key.endswith(" by length")]
    groups = [(test, end) for test in tests for end, *_ in rows[0][f"{test} by length"]]
    header = ["source words", "pairs", *(f"{name}: {what}" for name in asked.names for what in ("BLEU", "loss"))]
    grid = [header]
    for test, end in groups:
        found = {name: at(rows, name, test, end) for name in asked.names}
        first = found[asked.names[0]]
        cells = [spread([one[what] for one in found[name]]) for name in asked.names for what in (2, 3)]
        grid.append([f"{test}, {told(end)}", f"{first[0][1]:,}", *cells])
    for key in ("parameters", "tokens/s"):
        grid.append([key, "", *(text for name in asked.names for text in (spread(of(rows, name, key)), ""))])
    claims = [(CLAIM, holds(rows, tests[0], asked.names))]
    notes = ["the loss is in nats per token; decoding as the recipe has it"]
    title = "Quality by the length of the source, with attention and without"
    panels = [lines(rows, asked.names, test, what, name) for test in tests for what, name in ((2, "BLEU"), (3, "loss"))]
    return Report(title, grid, claims, notes, {"bottleneck": Picture(title, panels, "; ".join(asked.budget))})


def at(rows: list[Row], name: str, test: str, end: int) -> list[Any]:
    """Of all seeds: the end of the group, its pairs, BLEU, loss."""
    return [one for row in rows if row["name"] == name for one in row[f"{test} by length"] if one[0] == end]


def told(end: int) -> str:
    return f"up to {end}" if end else "longer"


def lines(rows: list[Row], names: Sequence[str], test: str, what: int, metric: str) -> Lines:
    ends = [end for end, *_ in rows[0][f"{test} by length"]]
    series = [
        Series(name, list(map(str, ends)), [mean(one[what] for one in at(rows, name, test, end)) for end in ends])
        for name in names
    ]
    return Lines(test, "source words, at the most", metric, series)


def holds(rows: list[Row], test: str, names: Sequence[str]) -> bool | None:
    """On the first test set, whose lengths are those of training: a lower loss with attention at every length, and a greater
    lead on the longest sources than on the shortest."""
    ends = [end for end, *_ in rows[0][f"{test} by length"]]
    if set(names) != set(NAMES) or len(ends) < 2:
        return None
    losses = {name: [mean(one[3] for one in at(rows, name, test, end)) for end in ends] for name in NAMES}
    leads = [without - attends for without, attends in zip(losses["none"], losses["attention"], strict=True)]
    return bool(min(leads) > 0 and leads[-1] > leads[0])


EXPERIMENT = Experiment(
    settings={
        "smoke": smoke(SMOKE, **{"test rows": 20}),
        "quick": Setting(
            "some two minutes on two cores, less training than the recipe asks for",
            changes=["training.updates=400", "training.validate_every=400", "training.save_every=400", "decoding.beam=1"],
        ),
        "full": Setting("the recipe as it stands, three seeds; not run yet", seeds=3),
    },
    names=lambda: NAMES,
    trial=trial,
    report=report,
)
