"""Which rows are trained on and which validated on; those that the model cannot read are refused before the first step."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from regard.data import store as stores
from regard.data.faults import ADVICE, BadRows, Fault
from regard.data.fields import Field, Text, read_blocks
from regard.data.matching import as_faults, check_values
from regard.data.readers import Rows, notes
from regard.data.store import Store
from regard.errors import UserError
from regard.models.limits import Limits
from regard.recipe import Data, Pairs

Say = Callable[[str], None]
Row = tuple[str, ...]  # a value for each column
RAISE = "raise the key named, or leave such rows out with data.on_bad_row=skip"
LOWER = "raise the key named, lower data.max_length, or leave such rows out with data.on_bad_row=skip"
GOLD = "mend the file: data.valid.alignment has a line for each of its rows, so none can be left out"


def tell_bad_rows(store: Store, directory: Path, say: Say) -> None:
    rows_in, used, reported = (store.facts[f"rows_{name}"] for name in ("in", "used", "reported"))
    if reported:
        say(f"{rows_in:,} rows = {used:,} used + {reported:,} reported in {directory / 'bad_rows.txt'}")
    if unguided := store.facts.get("rows_unguided"):
        say(f"{unguided:,} rows lost their links: the tokenizer sees other words in them than spaces separate")


def split(
    data: Data, store: Store, limits: Limits, fields: Mapping[str, Field], directory: Path, seed: int, say: Say,
    last: bool = False,
) -> tuple[npt.NDArray[np.int64], list[Row]]:  # fmt: skip
    """Rows to train on, and rows to validate on: from files, or held out of the training rows (the `last` ones)."""
    assert data.train is not None
    for pairs in (data.train, data.valid):
        for note in notes(pairs) if pairs is not None else ():
            say(f"note: {note}")
    fit = fitting(data, store, limits, directory, say)
    if data.valid is not None:
        rows, valid = np.flatnonzero(fit), read_valid(data, limits, fields, directory, say)
    elif len(store) < 2:
        columns = " and ".join(f"data.valid.{name}" for name in fields)
        raise UserError(f"one training row leaves none to validate on; give {columns}")
    else:
        aside = stores.held_out(store.lines, data.held_out, seed)
        aside = np.sort(aside) if last else aside
        rows, valid = (
            np.flatnonzero(~aside & fit),
            stores.texts_of(store, data.train, fields, np.flatnonzero(aside & fit).tolist()),
        )
    if not len(rows) or not valid:
        raise UserError(f"no row is left to {'validate' if len(rows) else 'train'} on: all are bad or too long for the model")
    return rows, valid


def fitting(data: Data, store: Store, limits: Limits, directory: Path, say: Say) -> npt.NDArray[np.bool_]:
    """Which rows of the store the model can read."""
    assert data.train is not None
    columns = (name if name in store.columns else None for name in ("source", "target"))
    lengths = [np.asarray(store.lengths(name)).astype(np.int64) for name in columns]
    fit: npt.NDArray[np.bool_] = np.full(len(store), True) & limits.allow(*lengths)
    bad = BadRows(data.on_bad_row, directory / "long_rows.txt", LOWER)
    long = np.flatnonzero(~fit)
    bad.add(faults(data.train, limits, [int(store.lines[row]) for row in long], *(side[long].tolist() for side in lengths)))
    if bad.count:
        say(f"{bad.count:,} rows are too long for the model and left out: {bad.report} lists them")
    return fit


def read_valid(data: Data, limits: Limits, fields: Mapping[str, Field], directory: Path, say: Say) -> list[Row]:
    """All rows that can be used; bad ones follow `data.on_bad_row`, unless alignments tell that there is one line for each."""
    assert data.valid is not None
    gold = data.valid.alignment is not None
    found, bad, long = list[Row](), list[Fault](), list[Fault]()
    for rows in read_blocks(data.valid, fields):
        values = {name: field.located(rows.columns[name], data.valid.file_of(name).parent) for name, field in fields.items()}
        wrong, many = unusable(data.valid, rows, values, limits, fields)
        lines = {fault.line for fault in (*wrong, *many)}
        each = zip(rows.lines, *values.values(), strict=True)
        found += [tuple(row) for line, *row in each if line not in lines]
        bad, long = bad + rows.faults + wrong, long + many
    report = BadRows("stop" if gold else data.on_bad_row, directory / "bad_valid_rows.txt", GOLD if gold else ADVICE)
    report.add(bad)
    report.advice = GOLD if gold else RAISE
    report.add(long)
    if report.count:
        say(f"{report.count:,} validation rows are left out: {report.report} lists them")
    return found


def unusable(
    files: Pairs, rows: Rows, values: Mapping[str, list[str]], limits: Limits, fields: Mapping[str, Field]
) -> tuple[list[Fault], list[Fault]]:
    """Rows that the fields cannot read, and rows that the model has no places for."""
    if not any(limits) and all(isinstance(field, Text) for field in fields.values()):
        return [], []
    lengths, problems = check_values(fields, values)
    wrong = as_faults(files, rows, problems)
    nothing = [0] * len(rows.lines)
    return wrong, faults(files, limits, rows.lines, lengths.get("source", nothing), lengths.get("target", nothing))


def faults(pairs: Pairs, limits: Limits, lines: Sequence[int], sources: Sequence[int], targets: Sequence[int]) -> list[Fault]:
    """Of rows of so many tokens, those that are too long; the file is that of the side that is."""
    each = zip(lines, sources, targets, strict=True)
    found = ((line, source, limits.problem(source, target)) for line, source, target in each)
    return [
        Fault(pairs.file_of("source" if limits.problem(source) else "target"), line, problem)
        for line, source, problem in found
        if problem is not None
    ]
