"""What people bring themselves: a file or a module that `--import` names, and that adds entries to our tables.

A run and a model remember what was given. Nothing that a directory names is ever executed because the directory names it.
"""

import hashlib
import importlib
import os
import sys
import textwrap
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from regard.errors import UserError
from regard.problems import MOST, shown

PATH = 400  # letters of a path that people have to type again
GIVEN: dict[str, str | None] = {}  # by this process, as it was written -> the SHA-256 of a file, None of a module


def use(name: str) -> None:
    """Run a file once, or import a module by its name; one message with the place of what goes wrong."""
    is_file = name.endswith(".py") or os.sep in name
    try:
        code = Path(name).read_bytes() if is_file else b""
    except OSError as error:
        raise UserError(f"--import {name}: {error.strerror}") from None
    digest = hashlib.sha256(code).hexdigest() if is_file else None
    if name in GIVEN and GIVEN[name] == digest:
        return
    try:
        if is_file:
            run_file(Path(name).absolute(), code)
        else:
            importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise UserError(f"--import {name}: {told(error, name)}") from error
    GIVEN[name] = digest


def run_file(path: Path, code: bytes) -> None:
    """As a module of its own, known by a name that no other module has."""
    module = ModuleType(f"imported_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # where dataclasses and others look for what a class was written in
    try:
        exec(compile(code, str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise


def told(error: BaseException, name: str) -> str:
    """file:line of the error, its kind and its words, in one line."""
    if isinstance(error, ModuleNotFoundError) and error.name == name:
        return "no module of this name can be found (the name of a file ends in .py)"
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}: not valid Python: {error.msg}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen")]
    ours = [frame for frame in frames if frame.filename == str(Path(name).absolute())] or frames
    words = textwrap.shorten(str(error), 300, placeholder=" ...")
    return f"{ours[-1].filename}:{ours[-1].lineno}: {type(error).__name__}: {words}"


def advice(recorded: object) -> str:
    """What to do if something is missing that was made with these imports; nothing if all of them have been given."""
    if not isinstance(recorded, Mapping):
        return ""
    found = list(recorded.items())[:MOST]
    absent = [name for name, digest in found if name not in GIVEN and (not digest or digest not in GIVEN.values())]
    others = [name for name, digest in found if name in GIVEN and GIVEN[name] != digest]
    again = " ".join(f"--import {shown(name, str, PATH)}" for name in absent)
    lost = f"made with {again}; give it again" if absent else ""
    changed = "made with another version of " + " and ".join(shown(name, str) for name in others) if others else ""
    return "; ".join(one for one in (lost, changed) if one)


@contextmanager
def advised(recorded: object) -> Iterator[None]:
    """What goes wrong with something that was made with these imports may be for want of one: say so."""
    try:
        yield
    except UserError as error:
        if not (hint := advice(recorded)) or hint in str(error):
            raise
        raise type(error)(f"{error}; {hint}") from error
