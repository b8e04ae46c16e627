"""Text that comes through a pipe can be read only once, and we read several times: it is copied to a file first. A run keeps
such files, and the rows that a program gave it, as its own."""

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import NamedTuple

from regard.data.formats import guessed
from regard.data.lines import BLOCK, PACKED
from regard.data.sealed import file_digest, read_manifest, sealed
from regard.errors import DamagedError, DataError, UserError
from regard.recipe import Data, Pairs

ONE_PROCESS = ("/dev/fd/", "/dev/stdin", "/proc/")  # names that mean another file to every process


class Spooled(NamedTuple):
    """Files by what they are for, and the folder that holds those which came through pipes."""

    files: dict[str, Path]
    folder: Path | None = None


def comes_once(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False  # whoever opens it will say so
    return stat.S_ISFIFO(mode) or (stat.S_ISREG(mode) and str(path).startswith(ONE_PROCESS))


@contextmanager
def spooled(given: Mapping[str, Path | None]) -> Iterator[Spooled]:
    """The files that are given, pipes copied into a folder that lives as long as the block."""
    files = {name: path for name, path in given.items() if path is not None}
    pipes = {name: path for name, path in files.items() if comes_once(path)}
    if not pipes:
        yield Spooled(files)
        return
    refuse_shared(pipes)
    with TemporaryDirectory(prefix="regard-") as folder:
        yield Spooled({**files, **copies(pipes, Path(folder))}, Path(folder))


def refuse_shared(pipes: Mapping[str, Path]) -> None:
    """Two readers of a pipe get half of it each."""
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise UserError(f"{next(iter(pipes.values()))}: a pipe, which several processes cannot read: write it to a file first")
    ids = {name: (path.stat().st_dev, path.stat().st_ino) for name, path in pipes.items()}
    if len(set(ids.values())) < len(ids):
        raise UserError(f"{' and '.join(map(str, pipes.values()))}: the same pipe twice: write it to a file first")


def copies(pipes: Mapping[str, Path], folder: Path) -> dict[str, Path]:
    """All of them at once: who writes to two pipes in turn waits for both to be read."""
    found: dict[str, Path] = {}
    problems: list[DataError] = []

    def run(name: str, path: Path) -> None:
        try:
            found[name] = copied(path, folder / name, pairs=name.endswith("pairs"))
        except DataError as problem:
            problems.append(problem)

    threads = [Thread(target=run, args=each, daemon=True) for each in pipes.items()]  # Ctrl-C does not wait for them
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for problem in problems:
        raise problem
    return found


def copied(path: Path, target: Path, pairs: bool) -> Path:
    """The copy, under a name that says what it is: only its content can tell."""
    try:
        with path.open("rb", buffering=0) as pipe, target.open("wb") as file:
            shutil.copyfileobj(pipe, file, BLOCK)
        with target.open("rb") as file:
            first = file.read(8)
        packed = next((end for end, one in PACKED.items() if first.startswith(one.begins)), "")
    except OSError as error:
        raise DataError(f"{path}: cannot be copied to {target}: {os.strerror(error.errno or 0)}") from None
    target = target.rename(target.with_name(target.name + packed))
    if not pairs:
        return target
    return target.rename(target.with_name(f"{target.name.removesuffix(packed)}{guessed(target, path)}{packed}"))


def renamed(data: Data, folder: Path, target: Path) -> Data:
    """The same data with the files of `folder` named as they will be in `target`."""

    def moved(pairs: Pairs | None) -> Pairs | None:
        names = {} if pairs is None else {name: getattr(pairs, name) for name in ("source", "target", "pairs", "text")}
        inside: dict[str, object] = {
            name: target / path.name for name, path in names.items() if path is not None and path.parent == folder
        }
        columns = {} if pairs is None else {name: moved_column(place) for name, place in pairs.columns.items()}
        return None if pairs is None else pairs.model_copy(update={**inside, "columns": columns})

    def moved_column(place: int | str) -> int | str:
        path = Path(str(place))
        return str(target / path.name) if path.parent == folder else place

    tests = {name: moved(pairs) for name, pairs in data.test.items()}
    return data.model_copy(update={"train": moved(data.train), "valid": moved(data.valid), "test": tests})


def keep(folder: Path, target: Path, begun: bool) -> None:
    """Move the copies to `target`, where a run that goes on finds them; one that has begun goes on with the same text."""
    files = sorted(folder.iterdir())
    new = {path.name: {"size": path.stat().st_size, "sha256": file_digest(path)} for path in files}
    if begun and not holds(target, new):
        raise UserError(f"{target}: the run began with other text than is given now; take another --run")
    if not begun:
        with sealed(target, {}) as inside:
            for path in files:
                shutil.move(path, inside / path.name)


def holds(target: Path, files: Mapping[str, object]) -> bool:
    try:
        return bool(read_manifest(target)["files"].items() >= files.items())
    except DamagedError:
        return False
