"""`regard.train`: from data, however a program holds it, to a model in use."""

import os
import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from regard import run as runs
from regard.data.given import is_table, section_of
from regard.decoding.load import load
from regard.decoding.trained import Trained
from regard.drafting import Files, continued, draft
from regard.errors import UserError, refuse
from regard.overrides import Overrides
from regard.recipe import Recipe, read_values
from regard.training.callbacks import Callback, Callbacks
from regard.training.display import Display


def train(
    data: Any = None,
    overrides: Overrides = (),
    *,
    recipe: str | os.PathLike[str] | Recipe | None = None,
    run: str | os.PathLike[str] | None = None,
    resume: bool = False,
    minutes: float | None = None,
    valid: Any = None,
    test: Any = None,
    on_step: Callback | None = None,
    on_validation: Callback | None = None,
    talk: bool = True,
) -> Trained:
    """Train a model, as `regard train` does, and return it as `regard.load` does.

    `data` are the training rows: a list (or any iterable) of (source, target) pairs of str, or of dicts with these two keys; a
    data frame, or a dict of columns, with `source` and `target` or with exactly two; the name of a .tsv, .csv, .jsonl or
    .parquet file; a dict of files, {"source": FILE, "target": FILE}. `valid` and `test` take the same. Or `data` is a recipe:
    its name, a .yaml file, a run, a `Recipe`; beside rows it is `recipe`. Without a recipe one is chosen for the rows, and
    fitted to so many `minutes` if they are given.

    `overrides` change the recipe: {"training.updates": 200, "data.tokenizer.kind": "word"}.

    `run` is the directory of the run, new or empty; `resume` continues the one that is there. Without `run` nothing is kept.

    on_step(step, numbers) is called every `training.log_every` updates with what the journal notes (loss, lr, tokens, ...),
    on_validation(step, scores) after every validation. If one returns True, the training ends there. Ctrl-C raises
    KeyboardInterrupt once the run is saved.
    """
    began = time.monotonic()
    refuse_wrong({"on_step": on_step, "on_validation": on_validation}, run, minutes)
    if is_recipe(data):
        if recipe is not None:
            raise UserError(f"two recipes, {data!r:.60} and {recipe!r:.60}; give the rows as data")
        data, recipe = None, data
    with TemporaryDirectory(prefix="regard-") as aside:
        place, given = Path(aside) / "run" if run is None else Path(run), Path(aside) / "given"
        given.mkdir()
        files = Files(*(section_of(*one, given) for one in ((data, "data"), (valid, "valid"), (test, "test"))))
        drafted = draft(values_of(recipe, place, resume, files), files, overrides, minutes, talk)
        spooled = given if any(given.iterdir()) else None
        stopped = runs.train(drafted, place, resume, talk, spooled, Callbacks(on_step, on_validation, began=began))
        if stopped is not None:
            interrupted(stopped, run)
        model = load(place, drafted.training.device)
    if run is None:
        model.path = None
        Display(0, 0, None, talk).say("that directory was a temporary one: name a directory, run=DIR, to keep the model")
    return model


def is_recipe(data: object) -> bool:
    return isinstance(data, Recipe) or (isinstance(data, str | os.PathLike) and not is_table(Path(data)))


def values_of(recipe: str | os.PathLike[str] | Recipe | None, run: Path, resume: bool, files: Files) -> dict[str, Any] | None:
    """Of the recipe that was given, or of the run that goes on; None if one is to be chosen for the rows."""
    if (run / "checkpoints").exists() and not resume:
        raise UserError(f"{run}: there is a run already; continue it with resume=True, or name another run")
    if isinstance(recipe, Recipe):
        return recipe.model_dump(mode="json")
    if recipe is not None:
        return read_values(os.fspath(recipe))
    values = continued(run, resume)
    if values is None and not files.train:
        raise UserError(f"{run}: no run to continue (no recipe.yaml)" if resume else "train on what? Give rows, or a recipe")
    return values


def refuse_wrong(callbacks: dict[str, Any], run: object, minutes: object) -> None:
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            refuse(f"{name} is a function of (step, numbers)", "this", callback)
    if run is not None and not isinstance(run, str | os.PathLike):
        refuse("run is the name of a directory", "this", run)
    if isinstance(run, str) and not run.strip():
        raise UserError("run is empty; name a directory (is a variable unset?)")
    if minutes is not None and not isinstance(minutes, int | float):
        refuse("minutes is a number", "this", minutes)
    if isinstance(minutes, int | float) and not minutes >= 0.1:
        raise UserError(f"minutes={minutes:g}: a tenth of a minute is the least")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError("regard.train works in one process; for several, write a file: torchrun -m regard train --pairs FILE")


def interrupted(number: int, run: object) -> NoReturn:
    """The run is saved; whoever called us hears of the signal as if it had not been caught."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt(None if run is None else f"continue with regard.train(run={str(run)!r}, resume=True)")
    raise SystemExit(128 + number)
