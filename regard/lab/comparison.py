"""Runs beside each other: learning curves, final metrics with paired significance against the first, what each costs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.links import read_links
from regard.decoding.load import load
from regard.errors import UserError
from regard.evaluation.comparison import Compared, compare_each
from regard.evaluation.evaluate import Question, read_test
from regard.insight.curves import Bars, Lines, Panel, Picture, Series
from regard.judged import test_sets
from regard.lab.experiment import Report
from regard.lab.grids import shown
from regard.models import configure
from regard.planning.cost import cost_of, memory_of
from regard.planning.example import Lengths
from regard.planning.lengths import lengths_of
from regard.planning.rate import tokens_a_second
from regard.recipe import Pairs, Recipe, read
from regard.run import metric_of
from regard.training.identity import differences as unlike
from regard.training.journal import read_journal

MEGA = 1e6
SIGNIFICANT = 0.05
ROWS = ("data.train", "data.valid", "data.test", "data.corpus")  # keys that begin so say where rows are
# what is said below bars
SHORT = {
    "forward MFLOPs per target token": "FLOPs",
    "MB of a training step": "memory",
    "target tokens/s in training": "tokens/s",
}


class Contender(NamedTuple):
    """A run, loaded."""

    name: str
    path: Path
    recipe: Recipe
    trained: Any

    @property
    def columns(self) -> dict[str, str]:
        """What its model reads and writes, and of which kind."""
        return {name: field.shape.kind for name, field in self.trained.fields.items()}

    @property
    def journal(self) -> list[dict[str, Any]]:
        path = self.path / "journal.jsonl"
        return read_journal(path) if path.is_file() else []


def contenders(runs: Sequence[Path], device: str) -> list[Contender]:
    """All loaded; refuse what cannot stand beside the first."""
    if len(runs) < 2:
        raise UserError("name two runs or more to compare")
    names = [run.name for run in runs]
    called = [run.name if names.count(run.name) == 1 else str(run) for run in runs]
    found = [Contender(name, run, recipe_in(run), load(run, device)) for name, run in zip(called, runs, strict=True)]
    for other in found[1:]:
        if other.columns != found[0].columns:
            ours, theirs = (", ".join(f"{name} ({kind})" for name, kind in one.columns.items()) for one in (found[0], other))
            raise UserError(
                f"{other.path}: it reads and writes {theirs}; {found[0].path} has {ours}: there are no rows for both"
            )
    return found


def recipe_in(run: Path) -> Recipe:
    for path in (run / "recipe.yaml", run / "model" / "recipe.yaml"):
        if path.is_file():
            return read(path)
    raise UserError(f"{run}: no run and no model directory (no recipe.yaml)")


def differences(found: Sequence[Contender]) -> list[str]:
    """What of their recipes makes figures hard to compare, in words."""
    told = list[str]()
    first = found[0]
    for other in found[1:]:
        ours, theirs = metric_of(first.recipe), metric_of(other.recipe)
        if ours != theirs:
            told.append(f"{other.name} chose its checkpoints by {theirs}, {first.name} by {ours}")
        if other.recipe.data.train != first.recipe.data.train or other.recipe.data.corpus != first.recipe.data.corpus:
            told.append(
                f"{other.name} was trained on other rows than {first.name}; both are judged on the rows of {first.name}"
            )
        if [one.digest for one in other.trained.fields.values()] != [one.digest for one in first.trained.fields.values()]:
            told.append(
                f"{other.name} has another vocabulary than {first.name}: losses and perplexities per token differ by it"
            )
    return told


def changed(first: Contender, other: Contender, most: int = 8) -> list[str]:
    """What else of the recipes is not the same: `key=value`, and in brackets the value of the first."""
    before, after = (one.recipe.model_dump(mode="json") for one in (first, other))
    keys = [each for each in unlike(before, after) if not each[0].startswith(ROWS)]
    if not keys:
        return []
    told = ", ".join(f"{key}={written(now)} ({written(was)})" for key, was, now in keys[:most])
    more = f" and {len(keys) - most} more" if len(keys) > most else ""
    return [f"the recipe of {other.name} beside that of {first.name}: {told}{more}"]


def written(value: Any) -> str:
    """As in an override."""
    return value if isinstance(value, str) else json.dumps(value)


def judged(found: Sequence[Contender], names: Sequence[str], beam: int | None, files: Pairs | None) -> dict[str, Any]:
    """test set -> run -> its metrics beside those of the first, which is beside itself."""
    with test_sets(found[0].path) as own:
        sets: Mapping[str, Any] = {"test": files} if files is not None else own.sets
        results: dict[str, Any] = {"note": "" if files is not None else own.note}
        for test, rows in sets.items():
            questions = [question(one, rows, beam) for one in found]
            each = compare_each(questions, names)
            results[test] = {one.name: compared for one, compared in zip(found, each, strict=True)}
    return results


def question(one: Contender, rows: Any, beam: int | None) -> Question:
    pairs = rows if isinstance(rows, list) else read_test(rows, one.trained.fields)
    gold = read_links(rows.alignment) if isinstance(rows, Pairs) and rows.alignment is not None else None
    return Question(one.trained, pairs, gold, one.trained.settings(**({} if beam is None else {"beam": beam})))


def costs(one: Contender, measure: bool) -> dict[str, float]:
    """Parameters, FLOPs, memory and, if it is measured, speed: of batches of the recipe's size and mean lengths."""
    section, shapes = one.trained.config, {name: field.shape for name, field in one.trained.fields.items()}
    data, training = one.recipe.data, one.recipe.training
    lengths = lengths_of(data, configure(section), None, None).lengths
    device = one.trained.device.type
    cost = cost_of(section, shapes, lengths, device)
    figures: dict[str, float] = {
        "parameters": cost.size,
        "updates": training.updates,
        "forward MFLOPs per target token": round(cost.forward / MEGA, 3),
        "MB of a training step": round(memory_of(cost, training.precision, data.batch_tokens, device).total / MEGA, 1),
    }
    if measure:
        speed = tokens_a_second(section, shapes, Lengths(*lengths), data.batch_tokens, training, device)
        figures["target tokens/s in training"] = round(speed)
    return figures


def report(found: Sequence[Contender], results: dict[str, Any], costs_of: dict[str, dict[str, float]], device: str) -> Report:
    tests = {test: each for test, each in results.items() if test != "note"}
    grid = [["", *(one.name for one in found)]]
    for test, each in tests.items():
        for place, first in enumerate(each[found[0].name]):
            cells = [shown(first.ours), *(beside(each[one.name][place]) for one in found[1:])]
            grid.append([f"{test} {first.name}", *cells])
    for key in costs_of[found[0].name]:
        grid.append([key, *(shown(costs_of[one.name][key]) for one in found)])
    first = found[0].name
    notes = [f"after each figure its difference from {first}, 95 % interval, and p by the paired bootstrap (Koehn 2004)"]
    notes += [results["note"]] * bool(results["note"])
    notes += [f"speed, memory and FLOPs: forward, backward and AdamW at mean lengths, on {device}", *differences(found)]
    notes += [note for other in found[1:] for note in changed(found[0], other)]
    title = f"{', '.join(one.name for one in found)}"
    panels = [*curves(found), *bars(found, tests), relative(costs_of, first)]
    caption = f"* differs from {first}: p < {SIGNIFICANT} by the paired bootstrap (Koehn 2004)"
    return Report(title, grid, (), notes, {"compare": Picture(f"Runs: {title}", panels, caption)})


def beside(one: Compared) -> str:
    low, high = one.interval
    return f"{shown(one.ours)} ({one.ours - one.theirs:+.3f} [{low:+.3f}, {high:+.3f}], p = {one.p_value:.3f}{star(one)})"


def star(one: Compared) -> str:
    return "*" if one.p_value < SIGNIFICANT else ""


def curves(found: Sequence[Contender]) -> list[Panel]:
    """The loss of training, and every figure of validation that some journal has."""
    keys = ["loss", *dict.fromkeys(key for one in found for row in one.journal for key in row if key.startswith("valid_"))]
    panels = list[Panel]()
    for key in keys:
        series = [curve(one, key) for one in found]
        if any(one.x for one in series):
            name = "loss of training" if key == "loss" else f"{key.removeprefix('valid_')} of validation"
            panels.append(Lines(name, "update", name, [one for one in series if one.x]))
    return panels


def curve(one: Contender, key: str) -> Series:
    rows = [row for row in one.journal if key in row]
    return Series(one.name, [row["step"] for row in rows], [row[key] for row in rows])


def bars(found: Sequence[Contender], tests: Mapping[str, Any]) -> list[Panel]:
    """One panel for the first metric and one for the loss: test sets side by side."""
    names = [one.name for one in next(iter(tests.values()))[found[0].name]] if tests else []
    shown_places = [place for place, name in enumerate(names) if place == 0 or name == "loss"]
    return [
        Bars(f"{names[place]} on test sets", "test set", names[place], [judgement(one.name, tests, place) for one in found])
        for place in shown_places
    ]


def judgement(name: str, tests: Mapping[str, Any], place: int) -> Series:
    """One metric of one run on all test sets."""
    each = [results[name][place] for results in tests.values()]
    return Series(name, list(tests), [one.ours for one in each], marks=[star(one) for one in each])


def relative(costs_of: dict[str, dict[str, float]], first: str) -> Bars:
    """What each costs as a multiple of what the first one costs."""
    keys = list(costs_of[first])
    ratios = {name: [cost[key] / costs_of[first][key] for key in keys] for name, cost in costs_of.items()}
    names = [SHORT.get(key, key) for key in keys]
    return Bars(f"costs, {first} = 1", "", "ratio", [Series(name, names, each) for name, each in ratios.items()])
