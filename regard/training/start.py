"""Training that starts from a trained model: with its fields and its weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from regard.data.fields import Field, Text
from regard.data.sealed import verify
from regard.data.tokenizer_files import TokenizerFile
from regard.data.tokenizers import fitter_of
from regard.errors import UserError
from regard.models import configure
from regard.models.directory import find_model, read_config
from regard.models.stored import read_stored
from regard.recipe import Tokenizer as Section
from regard.training.checkpoint import load_weights
from regard.training.identity import differences


def fields_of(path: Path, wanted: Section) -> dict[str, Field]:
    """Those of the model, whatever text the new run reads: its weights mean these tokens."""
    directory = find_model(path)
    verify(directory)
    fields = read_stored(directory).fields
    first = next((field.tokenizer for field in fields.values() if isinstance(field, Text)), None)
    if first is not None and wanted.file is not None and first.digest != fitter_of(wanted).finish().digest:
        raise UserError(f"{path}: its tokenizer is not that of {wanted.file}; set data.tokenizer.file=null")
    for key in ("lowercase",) if isinstance(first, TokenizerFile) else ("kind", "lowercase") if first is not None else ():
        if (theirs := getattr(first, key)) != (ours := getattr(wanted, key)):
            raise UserError(f"{path}: its tokenizer has {key}={theirs}; set data.tokenizer.{key}={theirs}, not {ours}")
    return fields


def start_weights(model: nn.Module, path: Path, wanted: Mapping[str, Any]) -> None:
    """The weights of a trained model of the same shape; only how much is dropped may differ."""
    directory = find_model(path)
    verify(directory)
    theirs = configure(read_config(directory / "config.json").model).model_dump(mode="json")
    for key, before, after in differences(theirs, wanted):
        if not key.endswith("dropout"):
            raise UserError(
                f"{path}: its model has model.{key}={before}, not {after}; training can start from the same model only"
            )
    load_weights(model, directory)
