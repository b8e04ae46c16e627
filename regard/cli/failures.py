"""Inputs that a model cannot read: each is named, the others are answered, and the exit code is 2."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import typer

T = TypeVar("T")


def name_each(problems: Mapping[int, str], where: str, what: str, first: int = 1) -> None:
    """`problems` by index; `where` comes before the number (`<stdin>:`), `first` is the number of the input with index 0."""
    for index, problem in problems.items():
        typer.echo(f"error: {where}{first + index}: {problem}; {what}", err=True)


def without(lines: Sequence[T], problems: Mapping[int, str], nothing: T) -> list[T]:
    """Lines in step, with nothing where one cannot be read."""
    return [nothing if index in problems else line for index, line in enumerate(lines)]


def leave(failed: bool) -> None:
    if failed:
        raise typer.Exit(2)
