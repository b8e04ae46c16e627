"""`regard.tune`: a search around a recipe, from data as a program holds it to the best model."""

import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.data.given import section_of
from regard.decoding.load import load
from regard.decoding.trained import Trained
from regard.drafting import Files
from regard.errors import UserError, refuse
from regard.overrides import Overrides
from regard.recipe import Recipe
from regard.tuning.halving import Limits
from regard.tuning.runs import StoppedError
from regard.tuning.study import tune as search


def tune(
    data: Any = None,
    overrides: Overrides = (),
    *,
    minutes: float = 30,
    trials: int | None = None,
    recipe: str | os.PathLike[str] | Recipe | None = None,
    run: str | os.PathLike[str] | None = None,
    resume: bool = False,
    valid: Any = None,
    talk: bool = True,
) -> Trained:
    """Search for a better recipe, as `regard tune` does, and return the best model as `regard.load` does.

    `data` and `valid` are rows or files as `regard.train` takes them; `overrides` fix keys, which are then not searched.
    `run` is the folder of the study, new or empty; `resume` continues the one that is there. Without `run` nothing is kept
    but the model.
    """
    if not isinstance(minutes, int | float) or not minutes >= 0.1:
        refuse("minutes is a number, a tenth at least", "this", minutes)
    if isinstance(run, str) and not run.strip():
        raise UserError("run is empty; name a folder (is a variable unset?)")
    with TemporaryDirectory(prefix="regard-") as aside:
        place, given = Path(aside) / "study" if run is None else Path(run), Path(aside) / "given"
        given.mkdir()
        files = Files(section_of(data, "data", given), section_of(valid, "valid", given), {})
        named = recipe if recipe is None or isinstance(recipe, Recipe) else os.fspath(recipe)
        spooled = given if any(given.iterdir()) else None
        try:
            search(files, named, overrides, place, resume, Limits(minutes, trials), talk, spooled)
        except StoppedError as stopped:
            if stopped.signal == signal.SIGINT:
                raise KeyboardInterrupt from None
            raise SystemExit(128 + stopped.signal) from None
        model = load(place)
    if run is None:
        model.path = None
    return model
