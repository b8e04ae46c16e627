"""A model on disk: self-contained, and nothing in it is code. It holds safetensors, JSON, YAML and the tokenizers."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save
from torch import Tensor

from regard.data.sealed import sealed, verify
from regard.data.tokenizers import Tokenizer, load_tokenizer
from regard.errors import DamagedError, UserError
from regard.models import SequenceToSequence, build, configure
from regard.recipe import Decoding, Recipe, parse, to_yaml

FORMAT = 1


class Bundle(NamedTuple):
    """What a trained model is made of."""

    model: SequenceToSequence
    source: Tokenizer
    target: Tokenizer
    decoding: Decoding


def save_model(
    directory: Path, weights: dict[str, Tensor], recipe: Recipe, source: Tokenizer, target: Tokenizer, card: str
) -> None:
    config = {
        "format": FORMAT,
        "model_type": "regard",
        "architectures": [recipe.model["kind"]],
        "model": recipe.model,
        "decoding": recipe.decoding.model_dump(mode="json"),
        "source_vocabulary": len(source),
        "target_vocabulary": len(target),
    }
    with sealed(directory, {"kind": "model"}) as inside:
        (inside / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
        (inside / "model.safetensors").write_bytes(save(weights))  # save_file would let no one else read it
        source.save(inside / "source_tokenizer")
        target.save(inside / "target_tokenizer")
        (inside / "recipe.yaml").write_text(to_yaml(recipe), encoding="utf-8")
        (inside / "README.md").write_text(card, encoding="utf-8")


def find_model(path: Path) -> Path:
    """A model directory, or the one inside a run."""
    for candidate in (path, path / "model"):
        if (candidate / "config.json").is_file():
            return candidate
    if (path / "checkpoints").is_dir():
        raise UserError(f"{path}: the run has no model yet; finish it with `regard train --run {path} --resume`")
    raise UserError(f"{path}: neither a run nor a model directory (no config.json in it)")


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
    return Bundle(model.eval(), *sides, parse(Decoding, config["decoding"], "decoding"))


def read_config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path}: not readable JSON: {error}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise DamagedError(f"{path}: not a model of this version (format {FORMAT})")
    return config
