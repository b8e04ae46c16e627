"""A model on disk: self-contained, and nothing in it is code. It holds safetensors, JSON, YAML and the tokenizers."""

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safetensors.torch import load_file, save
from torch import Tensor

from regard.data.sealed import MANIFEST, sealed, sweep, verify
from regard.data.tokenizers import Tokenizer, load_tokenizer
from regard.errors import DamagedError, UserError
from regard.models import Model, build, configure
from regard.recipe import Count, Decoding, Recipe, Section, parse, to_yaml

FORMAT = 1


class Reading(Section):
    """Which of a model's attention weights are read as its alignment."""

    head: Count | None = None  # counted over all layers; None: the mean of all
    shift: Literal[0, 1] = 0  # 1: where the step after a word's own looked, whose query has read the word (Chen et al. 2020)


class Bundle(NamedTuple):
    """What a trained model is made of."""

    model: Model
    source: Tokenizer
    target: Tokenizer
    decoding: Decoding
    reading: Reading = Reading()


def save_model(
    directory: Path,
    weights: dict[str, Tensor],
    recipe: Recipe,
    source: Tokenizer,
    target: Tokenizer,
    card: str,
    reading: Reading | None = None,
) -> None:
    config = {
        "format": FORMAT,
        "model_type": "regard",
        "architectures": [recipe.model["kind"]],
        "model": recipe.model,
        "decoding": recipe.decoding.model_dump(mode="json"),
        "reading": (reading or Reading()).model_dump(mode="json"),
        "source_vocabulary": len(source),
        "target_vocabulary": len(target),
    }
    with sealed(directory, {"kind": "model"}) as inside:
        write_config(inside, config)
        (inside / "model.safetensors").write_bytes(save(weights))  # save_file would let no one else read it
        source.save(inside / "source_tokenizer")
        target.save(inside / "target_tokenizer")
        (inside / "recipe.yaml").write_text(to_yaml(recipe), encoding="utf-8")
        (inside / "README.md").write_text(card, encoding="utf-8")


def write_config(directory: Path, config: dict[str, Any]) -> None:
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def store_reading(path: Path, reading: Reading) -> None:
    """The model as it is, but for how its alignments are read: a new directory in the place of the old one."""
    directory = find_model(path)
    facts = verify(directory)
    config = read_config(directory / "config.json") | {"reading": reading.model_dump(mode="json")}
    with sealed(directory, facts) as inside:
        shutil.copytree(directory, inside, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        write_config(inside, config)


def find_model(path: Path) -> Path:
    """A model directory, or the one inside a run."""
    for _ in range(2):
        for candidate in (path, path / "model"):
            if (candidate / "config.json").is_file():
                return candidate
        put_back(path)
    if (path / "checkpoints").is_dir():
        raise UserError(f"{path}: the run has no model yet; finish it with `regard train --run {path} --resume`")
    raise UserError(f"{path}: neither a run nor a model directory (no config.json in it)")


def put_back(path: Path) -> None:
    """A process that was killed while it replaced a model (`regard align --choose`) left the old one under another name."""
    for folder in (path, path.absolute().parent):
        with suppress(OSError):
            sweep(folder)


def load_model(path: Path) -> Bundle:
    """Verify every byte, then build. Nothing in the directory is executed."""
    directory = find_model(path)
    verify(directory)
    config = read_config(directory / "config.json")
    sides = load_tokenizer(directory / "source_tokenizer"), load_tokenizer(directory / "target_tokenizer")
    model = build(configure(config["model"]), config["source_vocabulary"], config["target_vocabulary"])
    try:
        model.load_state_dict(load_file(directory / "model.safetensors"))
    except RuntimeError as error:
        raise DamagedError(f"{directory / 'model.safetensors'}: does not fit config.json: {error}") from None
    decoding, reading = parse(Decoding, config["decoding"], "decoding"), parse(Reading, config.get("reading", {}), "reading")
    return Bundle(model.eval(), *sides, decoding, reading)


def read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path}: not readable JSON: {error}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise DamagedError(f"{path}: not a model of this version (format {FORMAT})")
    return config
