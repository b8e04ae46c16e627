"""The kinds of columns, by name, and the way from a recipe's `data.fields` and the training rows to a field for each column."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.data.field import FORMAT, Field, FieldFitter, Problems, Shape
from regard.data.files import Vectors
from regard.data.labels import Label, Tags
from regard.data.pictures import Image
from regard.data.readers import BadRows, Rows, read_rows
from regard.data.spelled import Spelled
from regard.data.texts import Text, texts, tokenizer_of, words_alone
from regard.data.tokenizer import LARGEST
from regard.data.tokenizers import load_tokenizer
from regard.data.untrusted import read_json
from regard.errors import DamagedError, RecipeError
from regard.problems import hint
from regard.recipe import Data, Pairs, choose, parse

__all__ = [
    "FIELDS", "Field", "FieldFitter", "Image", "Label", "Problems", "Shape", "Spelled", "Tags", "Text", "Vectors",
    "configure_fields", "fit_fields", "load_field", "outlines", "read_blocks", "texts", "tokenizer_of",
]  # fmt: skip

FILES_AT_ONCE = 64  # files whose content is in memory together while a store is made
FIELDS: dict[str, type[Field]] = {
    "text": Text, "label": Label, "tags": Tags, "vectors": Vectors, "image": Image, "spelled": Spelled,
}  # fmt: skip


def configure_fields(data: Data, columns: Mapping[str, str]) -> dict[str, Any]:
    """The typed form of `data.fields` for the columns of a model, each of its usual kind unless the recipe says another."""
    for name in data.fields:
        if name not in columns:
            raise RecipeError(f"data.fields.{name}: the model has no column {name!r}; {hint(name, columns)}")
    return {name: configure_field(name, {"kind": kind, **data.fields.get(name, {})}, data) for name, kind in columns.items()}


def configure_field(name: str, values: dict[str, Any], data: Data) -> Any:
    field = choose(FIELDS, values["kind"], f"field in data.fields.{name}.kind")
    config = parse(field.Config, values, where=f"data.fields.{name}")
    own = getattr(config, "tokenizer", data.tokenizer)
    return config if own is not None else config.model_copy(update={"tokenizer": data.tokenizer})


def outlines(configs: Mapping[str, Any]) -> list[Shape]:
    """Small shapes of these columns, for a model that is outlined before any row has been read."""
    return [FIELDS[config.kind].outline(config) for config in configs.values()]


def fit_fields(data: Data, configs: Mapping[str, Any]) -> dict[str, Field]:
    """A field for each column, in one pass over the training rows. Texts that share data.tokenizer have one vocabulary where
    it is `shared`."""
    assert data.train is not None
    fitters: dict[str, FieldFitter] = {}
    for name, config in configs.items():
        ours = {other: one for other, one in configs.items() if getattr(one, "tokenizer", None) is data.tokenizer}
        alike = [other for other in fitters if other in ours and ours[other].kind == config.kind]
        shared = data.tokenizer.shared and alike and name in ours
        fitters[name] = fitters[alike[0]] if shared else FIELDS[config.kind].fitter(config)
    labelled = {FIELDS[config.kind].like for config in configs.values()} & {  # texts whose tokens have a tag each
        name for name, config in configs.items() if FIELDS[config.kind] is Text
    }
    bad = BadRows(data.on_bad_row)
    for rows in read_rows(data.train):
        bad.add(rows.faults)
        for name, fitter in fitters.items():
            located = FIELDS[configs[name].kind].located(rows.columns[name], data.train.file_of(name).parent)
            fitter.add(words_alone(configs[name].tokenizer, located) if name in labelled else located, name)
    finished = {number: fitter.finish() for number, fitter in {id(fitter): fitter for fitter in fitters.values()}.items()}
    return {name: finished[id(fitter)] for name, fitter in fitters.items()}


def read_blocks(files: Pairs, fields: Mapping[str, Field]) -> Iterator[Rows]:
    """All rows; where values are files, few at a time, for each may be large."""
    large = any(field.from_files for field in fields.values())
    for rows in read_rows(files):
        yield from rows.cut(FILES_AT_ONCE) if large else (rows,)


def load_field(path: Path) -> Field:
    """The field that was saved there; DamagedError for what is not, to the last key, what one would save."""
    if not (path / "field.json").exists():
        return Text(load_tokenizer(path))
    facts = read_json(path / "field.json", LARGEST)
    try:
        if facts["format"] != FORMAT:
            raise ValueError(f"format {facts['format']!r:.40} is not {FORMAT}")
        field = FIELDS[facts["kind"]].restore(facts)
        if json.loads(field.description) != facts:
            raise ValueError("it says more or other things than a field of its kind")
    except DamagedError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        what = f"no key or kind {error}" if isinstance(error, KeyError) else str(error)
        raise DamagedError(f"{path / 'field.json'}: no field can be read from it: {what:.200}") from None
    return field
