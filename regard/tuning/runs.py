"""A trial as a run: trained to a step and left there, read back from its checkpoint, concluded where it stands."""

import math
import time
from pathlib import Path

import torch

from regard import run
from regard.data.fields import configure_fields, load_field
from regard.evaluation.metrics import METRICS
from regard.models import build, configure
from regard.recipe import Recipe
from regard.run_directory import fields_folder
from regard.training.callbacks import Callbacks
from regard.training.checkpoint import Checkpoints, Progress, read_progress
from regard.training.display import print_warning
from regard.tuning.trials import Reached


class StoppedError(Exception):
    """A signal asked the search to stop; the run is saved."""

    def __init__(self, signal: int) -> None:
        super().__init__(signal)
        self.signal = signal


def train_to(recipe: Recipe, directory: Path, step: int, deadline: float = math.inf) -> Progress:
    """From its latest checkpoint to this step, or for as long as there is time. Only the last step makes a model."""

    def pause(done: int) -> bool:
        return done >= step or time.monotonic() >= deadline

    signal = run.train(recipe, directory, resume=True, talk=False, callbacks=Callbacks(pause=pause))
    if signal is not None:
        raise StoppedError(signal)
    return progress_of(directory)


def progress_of(directory: Path) -> Progress:
    path = Checkpoints(directory / "checkpoints", print_warning).latest()
    assert path is not None  # a run that was left or has ended is saved
    return read_progress(path)


def standing(recipe: Recipe, directory: Path, rung: int, seconds: float) -> Reached:
    """What a checkpoint says, as the journal keeps it."""
    state = progress_of(directory)
    ended = state.step >= recipe.training.updates or state.finished
    best = state.best[0] if state.best else None
    score = None if best is None or not math.isfinite(best.score) else METRICS[run.metric_of(recipe)].rank(best.score)
    loss = best.loss if best is not None and math.isfinite(best.loss) else None
    return Reached(rung, state.step, score, loss, round(seconds, 2), parameters(recipe, directory), ended)


def parameters(recipe: Recipe, directory: Path) -> int:
    """Counted on a model that holds no numbers."""
    config, folder = configure(recipe.model), fields_folder(directory)
    with torch.device("meta"):
        shapes = [load_field(folder / name).shape for name in configure_fields(recipe.data, config.columns)]
        return sum(one.numel() for one in build(config, *shapes).parameters())


def conclude(recipe: Recipe, directory: Path) -> Path:
    """The model of a trial as it stands, of its best validations so far; the run can still be resumed to its full length."""
    state = progress_of(directory)
    ended = state.finished or state.step >= recipe.training.updates
    if not (ended and (directory / "model").exists()):
        shorter = recipe.training.model_copy(update={"updates": min(state.step, recipe.training.updates)})
        train_to(recipe.model_copy(update={"training": shorter}), directory, state.step)
    return directory / "model"
