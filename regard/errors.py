"""Errors for people: what is wrong, where, what is allowed. The command line prints them without a traceback."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn


class UserError(ValueError):
    """Something the user can mend: a wrong key, a bad file, a run that is in use."""


class InputTypeError(UserError, TypeError):
    """A function was given something of another type than it takes; the message names both."""


def refuse(takes: str, where: str, given: object) -> NoReturn:
    """What a function takes, and what it was given instead."""
    shown = repr(given)
    raise InputTypeError(f"{takes}; {where} is {shown[:60] + '...' * (len(shown) > 60)} ({type(given).__name__})")


class PeerError(UserError):
    """Another process of this run has failed or gone away."""


class DataError(UserError):
    """A data file is not what it should be; the message names the file and the line."""


class InputError(UserError):
    """Some inputs of a list cannot be used, and the others have been: `problems` says by index what is wrong with each,
    `results` has what the others gave, and None in their places."""

    def __init__(self, what: str, problems: dict[int, str], results: list[Any]) -> None:
        index, problem = next(iter(problems.items()))
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(
            f"{what}[{index}]{more}: {problem}; this error's .results has what the others gave, its .problems the rest"
        )
        self.problems, self.results = problems, results


class DamagedError(UserError):
    """A directory we wrote is not as we wrote it; the message names the file."""


class RecipeError(UserError):
    """The recipe is wrong; the message names the key and the choices."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """A full disk is told by the system without saying where: name the file that was being written."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
