"""Weights of a run that are no model: of one of its checkpoints, or the best so far of a run that has no model yet. Its
trainer may go on meanwhile: nothing is written here, and what vanishes while it is read is looked for again."""

import json
import time
from pathlib import Path
from typing import NamedTuple

from regard.data.fields import load_field
from regard.data.sealed import compare, read_manifest, verify
from regard.errors import DamagedError
from regard.imports import advised
from regard.models import Model, configure
from regard.models.stored import FORMAT, WEIGHTS, Stored, StoredConfig, StoredShape, build_stored, finite_weights
from regard.recipe import read

TRIES, PAUSE = 5, 0.2  # a trainer removes weights only when better ones are whole: the next look finds those


class Unfinished(NamedTuple):
    """What a run would make a model of if it ended now."""

    model: Model
    stored: Stored
    note: str = ""  # what people are told


def load_unfinished(run: Path) -> Unfinished | None:
    """None before the first weights are written."""
    for left in reversed(range(TRIES)):
        try:
            found = find_weights(run)
            if found is None:
                return None
            weights, known = found
            told = f"the run is still training, or was stopped: using step {step_of(weights)}, {known}"
            return load_weights(run, weights)._replace(note=told)
        except (DamagedError, OSError):
            if not left:
                raise
            time.sleep(PAUSE)
    return None


def find_weights(run: Path) -> tuple[Path, str] | None:
    """The best that the newest checkpoint names; where it names none, the newest."""
    for checkpoint in steps_in(run / "checkpoints")[:1]:
        for step in ranking(checkpoint)[:1]:
            return run / "best" / f"step-{step:09d}", "the best so far"
    newest = [*steps_in(run / "best"), *steps_in(run / "checkpoints")]
    return (newest[0], "the newest so far") if newest else None


def steps_in(folder: Path) -> list[Path]:
    """Newest first."""
    found = [path for path in folder.glob("step-*") if path.name.removeprefix("step-").isdecimal()]
    return sorted(found, key=step_of, reverse=True)


def step_of(weights: Path) -> int:
    return int(weights.name.removeprefix("step-"))


def checkpoints_of(run: Path) -> list[Path]:
    """All weights that a run has kept, a folder for each step, as it learned: the first step first."""
    found = {path.name: path for folder in ("best", "checkpoints") for path in steps_in(run / folder)}
    return sorted(found.values(), key=step_of)


def load_checkpoint(path: Path) -> Unfinished | None:
    """The weights of one step; None where `path` is no checkpoint of a run."""
    run = path.absolute().parent.parent
    if not (run / "recipe.yaml").is_file() or path.absolute() not in steps_in(path.absolute().parent):
        return None
    return load_weights(run, path)


def ranking(checkpoint: Path) -> list[int]:
    """The steps of the best weights, best first."""
    path = checkpoint / "progress.json"
    expected = read_manifest(checkpoint)["files"].get(path.name)
    if expected is None or compare(path, expected) is not None:
        raise DamagedError(f"{path}: damaged: not the progress of a run")
    return [int(step) for _, step, *_ in json.loads(path.read_bytes())["best"]]


def load_weights(run: Path, weights: Path) -> Unfinished:
    """As a model directory is loaded: verified, compared part with part, then built."""
    verify(weights)
    stored = read_parts(run)
    with advised(stored.config.imports):
        model = build_stored(stored, weights)
    model.load_state_dict(finite_weights(weights / WEIGHTS))
    return Unfinished(model, stored)


def read_parts(run: Path) -> Stored:
    """The recipe and the fields of a run; before there were fields, its tokenizers."""
    recipe = read(run / "recipe.yaml")
    folder = run / "tokenizers" if (run / "tokenizers").exists() else run / "fields"
    verify(folder)
    with advised(recipe.imports):
        model = configure(recipe.model)
        fields = {name: load_field(folder / name) for name in model.columns}
    config = StoredConfig(
        format=FORMAT,
        architectures=(model.kind,),
        model=recipe.model,
        decoding=recipe.decoding,
        imports=recipe.imports,
        columns={name: StoredShape(kind=field.kind, sizes=field.shape.sizes) for name, field in fields.items()},
    )
    return Stored(config, model, fields)
