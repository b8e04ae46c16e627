"""The directory of a run: it is new, empty or a run already, and nothing in it that we did not write is touched."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from regard.data.sealed import TEMPORARY, flush, foreign
from regard.errors import DamagedError, UserError, naming
from regard.recipe import Recipe, to_yaml

HEADER = "# The recipe of a run of regard, with every default filled in\n"
HELD_OUT = "valid.jsonl"
SEALED = ("fields", "tokenizers", "data", "spooled", "model")  # what a run writes as a whole, beside checkpoints


def claim(directory: Path) -> None:
    """Refuse a directory that holds anything but a run; and a run in whose place for data or a model something else stands."""
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory}: a file stands where the run's directory would be; take another --run")
    if not is_run(directory):
        for name in strangers(directory):
            raise UserError(f"{directory}: this is no run and it is not empty (it holds {name}); give --run a new directory")
    for name in SEALED:
        if (stranger := foreign(directory / name)) is not None:
            raise UserError(f"{stranger}: regard did not write this, and a run needs its place; move it out of {directory}")


def is_run(directory: Path) -> bool:
    """Whether we wrote a recipe here. (Before it had a header, tokenizers beside it told.)"""
    recipe = directory / "recipe.yaml"
    if not recipe.is_file():
        return False
    with recipe.open("rb") as file:
        written = file.read(len(HEADER)) == HEADER.encode()
    return written or (directory / "tokenizers" / "manifest.json").is_file()


def strangers(directory: Path) -> Iterator[str]:
    """What a run that was killed before it had a recipe would not have left here."""
    for path in sorted(directory.iterdir()) if directory.exists() else ():
        lock = path.name == ".lock" and path.is_file() and re.fullmatch(rb"\d{0,20}", path.read_bytes()[:32])
        if not lock and path.name != ".tmp-recipe.yaml" and TEMPORARY.fullmatch(path.name) is None:
            yield path.name


def write_recipe(directory: Path, recipe: Recipe) -> None:
    """In one step, and on the disk before anything that follows from it."""
    temporary = directory / ".tmp-recipe.yaml"
    with naming(temporary):
        temporary.write_text(HEADER + to_yaml(recipe), encoding="utf-8")
        flush(temporary)
        temporary.rename(directory / "recipe.yaml")
        flush(directory)


def write_held_out(directory: Path, rows: Sequence[Mapping[str, str]]) -> None:
    """A JSON object for each row, column -> text; in one step."""
    temporary = directory / f".tmp-{HELD_OUT}"
    with naming(temporary):
        temporary.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
        flush(temporary)
        temporary.rename(directory / HELD_OUT)


def held_out_rows(directory: Path) -> list[tuple[str, ...]]:
    """The rows that training held out of its own, a value for each column; none if it had files to validate on."""
    path = directory / HELD_OUT
    if not path.is_file():
        return []
    try:
        return [tuple(json.loads(line).values()) for line in path.read_bytes().splitlines()]
    except (ValueError, AttributeError, RecursionError):
        raise DamagedError(f"{path}: damaged: not one JSON object per line") from None


def fields_folder(directory: Path) -> Path:
    """Of a run; runs that began before there were fields keep their tokenizers."""
    old = directory / "tokenizers"
    return old if old.exists() else directory / "fields"
