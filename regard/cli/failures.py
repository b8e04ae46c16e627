"""Lines that a model cannot read: each is named, the others are answered, and the exit code is 1."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import typer

T = TypeVar("T")


def name_each(problems: Mapping[int, str], what: str, first: int = 1) -> None:
    """`problems` by index; `first` is the number of the line with index 0."""
    for index, problem in problems.items():
        typer.echo(f"warning: line {first + index}: {problem}; {what}", err=True)


def without(lines: Sequence[T], problems: Mapping[int, str], nothing: T) -> list[T]:
    """Lines in step, with nothing where one cannot be read."""
    return [nothing if index in problems else line for index, line in enumerate(lines)]


def leave(failed: bool) -> None:
    if failed:
        raise typer.Exit(1)
