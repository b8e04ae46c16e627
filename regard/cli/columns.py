"""`--column NAME=PLACE`: what a model reads or writes beside source and target."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.errors import UserError

Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME=PLACE",
        help="One more column: a file, one value per line, or a column of --pairs. May be repeated.",
    ),
]


def named(words: list[str] | None, option: str = "--column") -> dict[str, str]:
    """By name, the place of each."""
    found = dict[str, str]()
    for word in words or ():
        name, _, place = word.partition("=")
        if not name.isidentifier() or not place:
            raise UserError(f"{option} {word}: write NAME=PLACE, for example {option} tags=words.tags")
        if name in found:
            raise UserError(f"{option} {word}: there is {option} {name}={found[name]} already; name it once")
        found[name] = place
    return found


def column_files(places: Mapping[str, str], pairs: Path | None = None) -> dict[str, Path]:
    """Those that are files, which may be pipes; none are where there is a table."""
    return {} if pairs is not None else {f"column-{name}": Path(place) for name, place in places.items()}


def as_section(places: Mapping[str, str], files: Mapping[str, Path]) -> dict[str, Any]:
    """As a recipe says it, once pipes have become files."""
    named = {name: place_of(place, files.get(f"column-{name}")) for name, place in places.items()}
    return {"columns": named} if named else {}


def place_of(place: str, file: Path | None) -> str | int:
    if file is not None:
        return str(file.absolute())
    return int(place) if place.removeprefix("-").isdecimal() else place
