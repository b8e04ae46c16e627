"""A model on disk: self-contained, and nothing in it is code. It holds safetensors, JSON, YAML and fields."""

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import save
from torch import Tensor

from regard.data.fields import Field
from regard.data.sealed import MANIFEST, sealed, sweep, verify
from regard.errors import UserError
from regard.imports import advised
from regard.models import Model
from regard.models.rounded import STORED, joined, split
from regard.models.stored import (
    CONFIG,
    FORMAT,
    WEIGHTS,
    StoredConfig,
    StoredShape,
    build_stored,
    fill,
    finite_weights,
    read_stored,
)
from regard.models.stored import Reading as Reading
from regard.models.stored import read_config as read_config
from regard.models.unfinished import Unfinished, load_checkpoint, load_unfinished
from regard.nn.allocator import give_back_large
from regard.recipe import Decoding, Recipe, to_yaml


class Bundle(NamedTuple):
    """What a trained model is made of."""

    model: Model
    fields: Mapping[str, Field]
    decoding: Decoding
    reading: Reading = Reading()
    note: str = ""  # what people are told when it is loaded
    config: Mapping[str, Any] = {}  # the `model` section of its recipe
    path: Path | None = None  # where it was loaded from
    precision: str = "float32"  # that it was stored in


def save_model(
    directory: Path,
    weights: dict[str, Tensor],
    recipe: Recipe,
    fields: Mapping[str, Field],
    card: str,
    reading: Reading | None = None,
) -> None:
    config = StoredConfig(
        format=FORMAT,
        architectures=(recipe.model["kind"],),
        model=recipe.model,
        decoding=recipe.decoding,
        reading=reading or Reading(),
        imports=recipe.imports,
        columns={name: StoredShape(kind=field.kind, sizes=field.shape.sizes) for name, field in fields.items()},
    )
    with sealed(directory, {"kind": "model"}) as inside:
        write_config(inside, config)
        (inside / WEIGHTS).write_bytes(save(weights))  # save_file would let no one else read it
        for name, field in fields.items():
            field.save(inside / "fields" / name)
        (inside / "recipe.yaml").write_text(to_yaml(recipe), encoding="utf-8")
        (inside / "README.md").write_text(card, encoding="utf-8")


def write_config(directory: Path, config: StoredConfig) -> None:
    (directory / CONFIG).write_text(json.dumps(config.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")


def store_reading(path: Path, reading: Reading) -> None:
    """The model as it is, but for how its alignments are read: a new directory in the place of the old one."""
    directory = find_model(path)
    facts = verify(directory)
    config = read_config(directory / CONFIG).model_copy(update={"reading": reading})
    with sealed(directory, facts) as inside:
        shutil.copytree(directory, inside, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        write_config(inside, config)


def store_rounded(path: Path, into: Path, precision: str, told: str) -> None:
    """The model with its matrices in this precision as another directory, whose card also says what is `told`."""
    directory = find_model(path)
    facts = verify(directory)
    config = read_config(directory / CONFIG)
    weights = joined(finite_weights(directory / WEIGHTS), config.precision)
    with sealed(into, facts) as inside:
        shutil.copytree(directory, inside, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST, WEIGHTS))
        write_config(inside, config.model_copy(update={"precision": precision}))
        (inside / WEIGHTS).write_bytes(save(split(weights, precision)))
        with (inside / "README.md").open("a", encoding="utf-8") as card:
            card.write(told)


def find_model(path: Path) -> Path:
    """A model directory, or the one inside a run."""
    if (found := model_in(path)) is not None:
        return found
    if (path / "checkpoints").is_dir():
        raise UserError(f"{path}: the run has no model yet; finish it with `regard train --run {path} --resume`")
    raise UserError(f"{path}: neither a run nor a model directory (no config.json in it)")


def model_in(path: Path) -> Path | None:
    for _ in range(2):
        for candidate in (path, path / "model"):
            if (candidate / CONFIG).is_file():
                return candidate
        put_back(path)
    return None


def put_back(path: Path) -> None:
    """A process that was killed while it replaced a model (`regard align --choose`) left the old one under another name.
    Nothing else is touched: a trainer on another machine may be writing here."""
    for folder in (path, path.absolute().parent):
        if any(folder.glob(".tmp-*~*")):
            with suppress(OSError):
                sweep(folder)


def load_model(path: Path, rounded: bool = False) -> Bundle:
    """Verify every byte, compare the parts, then build. Nothing in the directory is executed. Of a run without a model yet,
    the best weights so far; of a checkpoint its own. `rounded`: weights stay as they are stored."""
    if model_in(path) is None and (found := load_checkpoint(path) or load_unfinished(path)) is not None:
        return bundle_of(found, path)
    directory = find_model(path)
    verify(directory)
    stored = read_stored(directory)
    config = stored.config
    if rounded and STORED[config.precision].keep is not None:
        give_back_large()  # as built, too: in a heap of that size each matrix that is laid out would touch pages of its own
    with advised(config.imports):
        model = build_stored(stored, directory)
    fill(model, directory / WEIGHTS, config.precision, rounded)
    return Bundle(model.eval(), stored.fields, config.decoding, config.reading, "", config.model, path, config.precision)


def bundle_of(found: Unfinished, path: Path) -> Bundle:
    config, note = found.stored.config, found.note and f"{path}: {found.note}"
    return Bundle(
        found.model.eval(), found.stored.fields, config.decoding, config.reading, note, config.model, path
    )  # fmt: skip


def check_model(directory: Path) -> None:
    """All that `load_model` checks of a directory whose checksums hold; memory for its weights alone."""
    stored = read_stored(directory)
    with advised(stored.config.imports):
        build_stored(stored, directory, "meta")
    finite_weights(directory / WEIGHTS)
