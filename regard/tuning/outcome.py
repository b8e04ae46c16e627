"""What a search leaves: the best model with its recipe, the figures of all trials, and what is said of them."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

from regard.data.sealed import MANIFEST, sealed, verify
from regard.errors import UserError
from regard.recipe import Recipe
from regard.run_directory import HELD_OUT
from regard.tuning.folder import replace, write_recipe
from regard.tuning.halving import Search, rung_steps
from regard.tuning.proposals import importance
from regard.tuning.runs import conclude
from regard.tuning.space import SPACE, changed
from regard.tuning.telling import told_values
from regard.tuning.trials import Trial

RESULT = "tune.json"
SHOWN = 15  # rows of the table
Facts = dict[str, Any]


def leave(search: Search, ending: str) -> Facts:
    """The best trial becomes the model of the study; the figures of all go to `tune.json`."""
    best, directory = search.ranking.so_far(search.trials.all)[0], search.directory
    if best.failed or best.last is None or best.last.score is None:
        more = next_commands(search)[-1]
        raise UserError(f"{ending}: no trial came to a validation that is a number; with more time: `{more}`")
    recipe, place = changed(search.point, best.values), search.place(best)
    copy_model(conclude(recipe, place), directory / "model")
    write_recipe(directory, with_tests(recipe, search))
    if (place / HELD_OUT).is_file():
        replace(directory / HELD_OUT, (place / HELD_OUT).read_text(encoding="utf-8"))
    facts = facts_of(search, ending)
    replace(directory / RESULT, json.dumps(facts, indent=1, ensure_ascii=False) + "\n")
    return facts


def copy_model(model: Path, target: Path) -> None:
    """As one step; a model of ours that stood there is replaced."""
    with sealed(target, verify(model)) as inside:
        shutil.copytree(model, inside, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))


def with_tests(recipe: Recipe, search: Search) -> Recipe:
    """The search did not look at them; who trains the recipe again may."""
    tests = type(recipe.data).model_validate({"test": search.point.values["data"]["test"]}).test
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"test": tests})})


def facts_of(search: Search, ending: str) -> Facts:
    trials, ranked = search.trials, search.ranking.so_far(search.trials.all)
    return {
        "study": str(search.directory),
        "ending": ending,
        "metric": search.metric,
        "higher_is_better": search.ranking.higher_is_better,
        "seconds": round(trials.seconds, 1),
        "chosen": row(search, trials.all[0]),
        "best": row(search, ranked[0]),
        "rungs": rung_steps(search.chosen.training, search.rungs),
        "importance": importance(search.space, trials.all, search.ranking),
        "space": {name: {"values": values, "reason": SPACE[name].reason} for name, values in search.space.items()},
        "trials": [row(search, trial) for trial in ranked],
        "next": next_commands(search),
    }


def row(search: Search, trial: Trial) -> Facts:
    last = trial.last
    facts = {"score": None, "loss": None, "step": 0, "parameters": None, "ended": False}
    facts |= {} if last is None else {key: value for key, value in last._asdict().items() if key in facts}
    return {
        "trial": trial.number, "wave": trial.wave, **facts, "seconds": round(trial.seconds, 1), "values": trial.values,
        "differs": told_values(trial.values, search.trials.all[0].values), "failed": trial.failed or None,
        "rungs": {one.rung: one.score for one in trial.reached if one.rung}, "run": str(search.place(trial)),
    }  # fmt: skip


def next_commands(search: Search) -> list[str]:
    """The last one goes on for as long again."""
    directory, minutes = search.directory, max(search.limits.minutes, math.ceil(search.trials.seconds / 60))
    return [
        f"regard generate {directory} < input.txt > output.txt",
        f"regard evaluate {directory}",
        f"regard train {directory / 'recipe.yaml'} --run {directory}-again",
        f"regard tune --run {directory} --resume --minutes {2 * minutes:g}",
    ]


def grid(facts: Facts) -> list[list[str]]:
    """The table of the best trials: a header and its rows."""
    header = ["trial", facts["metric"], "step", "seconds", "parameters", "what differs from the chosen recipe"]
    return [header, *(grid_row(one) for one in facts["trials"][:SHOWN])]


def grid_row(one: Facts) -> list[str]:
    score = "failed" if one["failed"] else "-" if one["score"] is None else f"{one['score']:.4g}"
    numbers = [f"{one['step']:,}{'' if one['ended'] else ' ...'}", f"{one['seconds']:.0f}", f"{one['parameters'] or 0:,}"]
    return [str(one["trial"]), score, *numbers, one["differs"]]


def lines(facts: Facts) -> list[str]:
    """What is said under the table."""
    best, chosen, left_out = facts["best"], facts["chosen"], len(facts["trials"]) - SHOWN
    told = [f"and {left_out} more in {facts['study']}/{RESULT}"] if left_out > 0 else []
    told += ["... : paused where it stands; only the best third of the trials go on at each rung"]
    told += [f"{facts['ending']}; {len(facts['trials'])} trials in {facts['seconds']:.0f} s of training"]
    told += [f"{facts['metric']} on validation rows: chosen {score_of(chosen)}, best {score_of(best)} (trial {best['trial']})"]
    told += important(facts["importance"])
    told += ["The best of many is chosen on these rows: expect a little less on new ones."]
    return [*told, "", "next:", *(f"  {command}" for command in facts["next"])]


def score_of(one: Facts) -> str:
    return "-" if one["score"] is None else f"{one['score']:.4g}"


def important(shares: dict[str, float]) -> list[str]:
    if not shares:
        return ["what mattered: too few different trials to tell"]
    told = ", ".join(f"{name} {share:.0%}" for name, share in sorted(shares.items(), key=lambda one: -one[1]))
    return [f"what mattered: {told} (PED-ANOVA at the first rung: what tells the best third from all)"]
