"""What a run or a model is judged on when no files are named: its recipe's test sets, or else what it was validated on."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import UserError
from regard.preparation import with_corpus
from regard.recipe import Pairs, read
from regard.run import metric_of
from regard.run_directory import HELD_OUT, held_out_rows, is_run
from regard.training.rows import Row

CHOSEN = "The best checkpoints were chosen on these rows: expect a little less on new ones."


class Judged(NamedTuple):
    """Sets by name, as files or as rows; what to say of them."""

    sets: dict[str, Pairs | list[Row]]
    note: str = ""


@contextmanager
def test_sets(directory: Path) -> Iterator[Judged]:
    """Generated ones are written into nobody's folder."""
    path = directory / "recipe.yaml"
    if not path.is_file():
        raise UserError(f"{directory}: no recipe.yaml that names test sets; give --source and --target (or --column)")
    with tempfile.TemporaryDirectory() as aside:
        data = with_corpus(read(path), directory if is_run(directory) else Path(aside)).data
        yield Judged(dict(data.test)) if data.test else validated_on(directory, data.valid)


def validated_on(directory: Path, valid: Pairs | None) -> Judged:
    """The validation files, or the rows that training held out of its own."""
    none = f"{directory}: its recipe names no test sets"
    if valid is not None:
        files = " and ".join(map(str, valid.files))
        return Judged({"valid": valid}, f"{none}; these are the rows it was validated on, of {files}. {CHOSEN}")
    if rows := held_out_rows(directory):
        where = f"the rows that training held out of its own ({directory / HELD_OUT})"
        return Judged({"held-out": rows}, f"{none}; these are {where}. {CHOSEN}")
    raise UserError(f"{none}, and it has no {HELD_OUT} of rows held out; give --source and --target (or --column)")


def training_files(directory: Path) -> dict[str, Any]:
    """As its recipe names them; none if it has no recipe, or no files."""
    path = directory / "recipe.yaml"
    train = read(path).data.train if path.is_file() else None
    return {} if train is None else train.model_dump()


def decides(directory: Path) -> str | None:
    """The metric that decided on the checkpoints of a run or a model; None if it has no recipe."""
    path = directory / "recipe.yaml"
    return metric_of(read(path)) if path.is_file() else None
