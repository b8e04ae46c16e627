"""A recipe before it is trained: by its name, of the run that goes on, or chosen from the data; with files and overrides."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.choices import choose_recipe
from regard.choices.telling import tell_choice
from regard.errors import UserError
from regard.overrides import Overrides, changes
from regard.pairs import as_in_training
from regard.planning.minutes import within
from regard.recipe import Recipe, override, parse, read_values


class Files(NamedTuple):
    """What is to be read, as a recipe says it."""

    train: dict[str, Any]
    valid: dict[str, Any]
    test: dict[str, Any]


def draft(
    values: Mapping[str, Any] | None, files: Files, overrides: Overrides = (), minutes: float | None = None, talk: bool = True,
    labels: bool = True,
) -> Recipe:  # fmt: skip
    """From the values of a recipe; without any, from what the training rows hold, `labels` among them."""
    if values is None:
        return chosen_recipe(files, overrides, minutes, talk, labels)
    if minutes is not None:
        raise UserError(
            "--minutes goes with data and no recipe: a recipe says itself how long it trains, by training.updates or minutes"
        )
    return parse(Recipe, override(with_files(values, files), overrides))


def continued(run: Path | None, resume: bool) -> dict[str, Any] | None:
    """The values of the recipe of a run that goes on."""
    begun = resume and run is not None and (run / "recipe.yaml").exists()
    return read_values(run / "recipe.yaml") if begun and run is not None else None


def chosen_recipe(files: Files, overrides: Overrides, minutes: float | None, talk: bool, labels: bool) -> Recipe:
    """From what the training rows hold, said out loud. Who overrides what only a generator has wants one."""
    said = {key: value for key, value in changes(overrides) if key.startswith("data.")}
    data = override(with_files({}, files), said)["data"]
    of_generators = any(key.startswith(("model.kind", "model.decoder", "decoding.")) for key, _ in changes(overrides))
    chosen = choose_recipe(
        data["train"], held_out=data.get("held_out"), tokenizer=data.get("tokenizer"), labels=labels and not of_generators
    )
    files = Files(*(chosen.task.columns(as_in_training(one, files.train)) for one in files))
    recipe = parse(Recipe, override(with_files(chosen.values, files), overrides))
    if talk:
        tell_choice(chosen)
    return recipe if minutes is None else in_time(recipe, within(minutes, recipe, overrides, talk), minutes, overrides)


def in_time(wanted: Recipe, fitted: Recipe, minutes: float, overrides: Overrides) -> Recipe:
    """An update may take longer than it seemed, or half as long: the run looks at the clock too, unless the user set its
    updates, and comes down from up to twice as many."""
    own, training = {key for key, _ in changes(overrides)}, fitted.training
    if "training.updates" in own:
        return fitted
    updates = min(wanted.training.updates, 2 * training.updates)
    bound = {"minutes": minutes, "updates": updates}
    if "training.warmup" not in own:
        bound["warmup"] = round(training.warmup * updates / training.updates)
    return parse(Recipe, override(fitted.model_dump(mode="json"), {f"training.{key}": value for key, value in bound.items()}))


def with_files(values: Mapping[str, Any], files: Files) -> dict[str, Any]:
    data = values.get("data") or {}
    if not isinstance(data, dict):
        raise UserError(f"data: a section with keys, not {data!r:.80}")
    if files.train:
        data = {key: value for key, value in data.items() if key not in ("corpus", "train", "valid", "test")}
        data["train"] = files.train
    if files.valid:
        data["valid"] = as_in_training(files.valid, data.get("train"))
    if files.test:
        data["test"] = {"test": as_in_training(files.test, data.get("train"))}
    return {**values, "data": data}
