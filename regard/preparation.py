"""From a recipe's files to what training reads: fields that were learned, a store of tokens, a plan of batches."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from regard.corpora import CORPORA
from regard.corpora.files import write
from regard.data import store as stores
from regard.data.fields import Field, Shape, Text, configure_fields, fit_fields, load_field
from regard.data.lanes import Lanes, LongText
from regard.data.plan import BatchPlan
from regard.data.readers import BadRows
from regard.data.sealed import MANIFEST, read_manifest, sealed, verify
from regard.data.store import Store
from regard.errors import DamagedError, UserError
from regard.models import build, configure, refuse_two_vocabularies
from regard.recipe import Data, Pairs, Recipe, choose
from regard.run_directory import fields_folder
from regard.training.frequencies import output_bias, word_counts
from regard.training.rows import Row, split, tell_bad_rows
from regard.training.start import fields_of

Say = Callable[[str], None]
LONGEST = 1 << 40  # tokens of a row that is a part of one long text


class Prepared(NamedTuple):
    """Data on its way into a model."""

    store: Store
    plan: BatchPlan | Lanes
    fields: dict[str, Field]
    valid: list[Row]  # a value for each column
    counts: npt.NDArray[np.int64] | None = None  # how often each word is written, if training begins with that

    @property
    def shapes(self) -> list[Shape]:
        return [field.shape for field in self.fields.values()]


def with_corpus(recipe: Recipe, directory: Path) -> Recipe:
    """A recipe on generated data, with the files it is written to."""
    if recipe.data.corpus is None:
        return recipe
    given, corpus = recipe.data, recipe.data.corpus
    joint = "source" not in configure(recipe.model).columns  # a model that reads no source has both sides as one text
    entry = choose(CORPORA, corpus.name, "corpus")
    written = write(entry, directory / "corpus", corpus.seed, corpus.size, replace=True, joint=joint)
    files = {split: section_of(paths) for split, paths in written.items()}
    train, valid = files.pop("train"), files.pop("valid")
    update = {"train": train, "valid": given.valid or valid, "test": given.test or files, "corpus": None}
    return recipe.model_copy(update={"data": recipe.data.model_copy(update=update)})


def section_of(paths: Mapping[str, Path]) -> Pairs:
    others = {name: str(path) for name, path in paths.items() if name not in Pairs.model_fields}
    usual = {name: path for name, path in paths.items() if name not in others}
    return Pairs.model_validate({**usual, "columns": others} if others else usual)


def prepare(recipe: Recipe, directory: Path, say: Say) -> Prepared:
    data, config = recipe.data, configure(recipe.model)
    if data.train is None:
        raise UserError("the recipe names no data: give --source and --target (or data.train.source=... and .target=...)")
    fields = fitted_fields(data, configure_fields(data, config.columns), directory, say, recipe.training.start_from)
    refuse_two_vocabularies(config, fields)
    copying, links = config.copies_words, "guided" in recipe.training.penalties
    refuse_changed_files(stores.files_of(data.train, links), directory, say)
    bad = BadRows(data.on_bad_row, directory / "bad_rows.txt")
    window = getattr(config, "window", None)  # of one long text, whose rows may have any length
    longest = data.max_length if window is None else LONGEST
    with torch.device("meta"):  # the model before its values are drawn
        model = build(config, *(field.shape for field in fields.values()))
    store = stores.prepare(
        directory / "data", data.train, fields, max_length=longest, bad_rows=bad, copying=copying, links=links,
        regions=model.regions if links else None,
    )  # fmt: skip
    tell_bad_rows(store, directory, say)
    if not len(store):
        raise UserError(f"{' and '.join(map(str, data.train.files))}: no row can be used; see {directory / 'bad_rows.txt'}")
    rows, valid = split(data, store, model.limits, fields, directory, recipe.training.seed, say, last=window is not None)
    written = store[model.writes]
    counts = word_counts(written, rows, len(output_bias(model))) if recipe.training.frequencies else None
    shapes = ", ".join(f"{name}: {field.shape.told}" for name, field in fields.items())
    say(f"{len(rows):,} training rows, {len(valid):,} for validation; {shapes}")
    if window is not None:
        text = LongText(written, rows)
        say(f"one text of {len(text):,} tokens, an end mark for each row; the state goes on from row to row")
        lanes = Lanes(text, max(data.batch_tokens // window, 1), window, recipe.training.seed)
        return Prepared(store, lanes, fields, valid, counts)
    read = next((name for name in fields if name != model.writes), None)
    plan = BatchPlan(store.lengths(read), store.lengths(model.writes), data.batch_tokens, recipe.training.seed, rows)
    return Prepared(store, plan, fields, valid, counts)


def refuse_changed_files(files: Sequence[Path], directory: Path, say: Say) -> None:
    """A run that has begun goes on with the text it began with. A damaged record of it is made again with the store."""
    if not (directory / "data" / MANIFEST).exists() or not any((directory / "checkpoints").glob("step-*")):
        return
    try:
        recorded = read_manifest(directory / "data")["facts"]["files"]
    except DamagedError as error:
        say(f"warning: {error}; the token store is built again from {' and '.join(map(str, files))}")
        return
    for path, before in zip(files, recorded, strict=False):  # alignments come last, and a run may begin to use them
        if not stores.unchanged(path, before):
            raise UserError(f"{path}: the file has changed since the run {directory} began; take another --run")


def fitted_fields(
    data: Data, configs: Mapping[str, Any], directory: Path, say: Say, start: Path | None = None
) -> dict[str, Field]:
    """Made once a run, from the training rows; or those of the model that the run starts from."""
    folder = fields_folder(directory)
    if not folder.exists():
        if start is None:
            say(f"learning {', '.join(f'{name}: {config.kind}' for name, config in configs.items())} from the training rows")
        fields = fit_fields(data, configs) if start is None else fields_of(start, data.tokenizer)
        for name, field in fields.items():
            for remark in field.tokenizer.remarks if isinstance(field, Text) else ():
                say(f"the tokenizer of {name} {remark}")
        with sealed(folder, {}) as inside:
            for name, field in fields.items():
                field.save(inside / name)
    verify(folder)
    return {name: load_field(folder / name) for name in configs}
