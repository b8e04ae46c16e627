"""What of a run or a model is whole, file by file: nothing is changed, and nothing stops at the first damage."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from regard.data.fields import load_field
from regard.data.sealed import MANIFEST, examine, read_manifest
from regard.data.untrusted import open_plain
from regard.errors import DamagedError, UserError
from regard.imports import advised
from regard.models.directory import check_model
from regard.models.stored import CONFIG, WEIGHTS
from regard.recipe import own_values, read
from regard.run_directory import HELD_OUT, SEALED, fields_folder
from regard.training.checkpoint import NAME

RUN = ("recipe.yaml", "checkpoints", "journal.jsonl")  # what tells a run, one of them at least
STEPS = ("checkpoints", "best")  # its folders of sealed directories, one a step


class Finding(NamedTuple):
    """What was found of one file, or of a directory as a whole."""

    path: Path
    state: str = "whole"
    whole: bool = True


def findings(path: Path) -> Iterator[Finding]:
    """Of a run, a model directory or any other sealed directory."""
    if any((path / name).exists() for name in (MANIFEST, CONFIG, WEIGHTS)):
        yield from in_sealed(path)
    elif any((path / name).exists() for name in RUN):
        yield from in_run(path)
    else:
        raise UserError(
            f"{path}: neither a run nor a model directory (it has no {MANIFEST}, {', '.join(RUN[:-1])} or {RUN[-1]})"
        )


def in_run(run: Path) -> Iterator[Finding]:
    """Its parts in the order they are written. A run that has not come so far lacks the last of them."""
    begun = any((run / "checkpoints").glob("step-*"))
    yield told(run / "recipe.yaml", check_recipe)
    needed = (fields_folder(run).name, "data") if begun else ()
    for name in SEALED[:-1]:
        if name in needed or (run / name).exists():
            yield from in_sealed(run / name)
    if (run / HELD_OUT).exists():
        yield told(run / HELD_OUT, check_journal)
    if begun or (run / "journal.jsonl").exists():
        yield told(run / "journal.jsonl", check_journal)
    for step in sorted(step for name in STEPS if (run / name).is_dir() for step in (run / name).iterdir()):
        yield from in_sealed(step) if NAME.fullmatch(step.name) else [Finding(step, "not of this run")]
    if (run / "model").exists():
        yield from in_sealed(run / "model")


def in_sealed(directory: Path) -> Iterator[Finding]:
    """Each file, and what the directory is good for if all of them are whole."""
    manifest = told(directory / MANIFEST, lambda path: read_manifest(path.parent))
    yield manifest
    if not manifest.whole:
        return
    found = [
        Finding(path, problem or "whole", not problem)
        for path, problem in examine(directory, read_manifest(directory)["files"])
    ]
    yield from found
    names = {one.path.relative_to(directory).as_posix() for one in found}
    if all(one.whole for one in found):
        yield from (told(directory, check, good) for is_one, check, good in CHECKS if is_one(names))


def told(path: Path, check: Callable[[Path], object], good: str = "whole") -> Finding:
    """What a check says, without the path before it."""
    if not path.exists() and not path.is_symlink():
        return Finding(path, "missing", False)
    try:
        check(path)
    except UserError as error:
        message = str(error).removeprefix(f"{path}: ")
        return Finding(path, message if message.startswith("damaged: ") else f"damaged: {message}", False)
    return Finding(path, good)


def check_recipe(path: Path) -> None:
    open_plain(path).close()
    read(path)


def check_journal(path: Path) -> None:
    """Each line is a JSON object."""
    with open_plain(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                good = isinstance(json.loads(line), dict)
            except (ValueError, RecursionError):
                good = False
            if not good:
                raise DamagedError(f"{path}: damaged: line {number} is no JSON object")


def check_fields(directory: Path) -> None:
    with advised(imports_of(directory.parent / "recipe.yaml")):
        for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
            load_field(folder)


def imports_of(path: Path) -> object:
    """What the run was begun with, if its recipe still tells."""
    try:
        open_plain(path).close()  # lest it be a pipe that nobody writes to
        return own_values(path).get("imports")
    except UserError:
        return None


def holds_fields(names: set[str]) -> bool:
    return any(re.fullmatch(r"[^/]+/(tokenizer|field)\.json", name) for name in names)


# By its files: what a sealed directory is for, how that is checked, what is said if all is well
CHECKS: tuple[tuple[Callable[[set[str]], bool], Callable[[Path], object], str], ...] = (
    (lambda names: CONFIG in names, check_model, "can be loaded"),
    (holds_fields, check_fields, "can be loaded"),
)
