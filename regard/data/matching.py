"""Whether the values of rows are such as their fields read, and go with each other."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from regard.data.fields import Field, Problems
from regard.data.readers import Fault, Rows
from regard.recipe import Pairs

ADVICE = "a tokenizer that cuts at spaces has one token for each word, whatever the spaces: data.tokenizer.kind=word"


def mismatches(
    fields: Mapping[str, Field], lengths: Mapping[str, Sequence[int] | npt.NDArray[np.int64]]
) -> dict[str, Problems]:
    """By column: rows that should have as many positions as those of another column, and have not."""
    found = dict[str, Problems]()
    for name, field in fields.items():
        other = field.like if field.like is not None and field.like in lengths else name
        ours, theirs = np.asarray(lengths[name]), np.asarray(lengths[other])
        found[name] = {
            int(row): f"{ours[row]} {name} for {theirs[row]} tokens of the {other} ({ADVICE})"
            for row in np.flatnonzero(ours != theirs)
        }
    return found


def as_faults(files: Pairs, rows: Rows, problems: Mapping[str, Problems]) -> list[Fault]:
    """Problems by column with the file and the line of each."""
    each = ((name, row, problem) for name, found in problems.items() for row, problem in found.items())
    return [Fault(files.file_of(name), rows.lines[row], problem) for name, row, problem in each]


def check_values(
    fields: Mapping[str, Field], values: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[int]], dict[str, Problems]]:
    """How many positions each value has and what is wrong with some, by column."""
    read = {name: field.encode(values[name]) for name, field in fields.items()}
    lengths = {name: [len(row) for row in rows] for name, (rows, _) in read.items()}
    unlike = mismatches(fields, lengths)
    bad = {row for _, problems in read.values() for row in problems}  # whose length means nothing
    told = {name: [*problems.items(), *((row, one) for row, one in unlike[name].items() if row not in bad)]
            for name, (_, problems) in read.items()}  # fmt: skip
    return lengths, {name: dict(sorted(each)) for name, each in told.items()}
