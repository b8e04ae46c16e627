"""Directories that can be trusted: written aside, checksummed, renamed in place; verified byte by byte when read."""

import errno
import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.errors import DamagedError, UserError, naming

FORMAT = 1
MANIFEST = "manifest.json"
TEMPORARY = re.compile(r"\.tmp-(\d+)([-~])(.+)", re.DOTALL)  # `-`: being written; `~`: the one being replaced
writing: set[Path] = set()  # of this process: a stale folder may carry our process id, which the system gives out again


@contextmanager
def sealed(target: Path, facts: dict[str, Any]) -> Iterator[Path]:
    """A folder to write in; it becomes `target` in one step when the block ends well, and vanishes when it does not.

    `facts` go into the manifest as they are at the end of the block.
    """
    refuse_foreign(target)
    folder = beside(target, "-")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    writing.add(folder)
    try:
        with naming(target):
            yield folder
            seal(folder, facts)
            move(folder, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        writing.discard(folder)


def beside(target: Path, mark: str) -> Path:
    return target.absolute().parent / f".tmp-{os.getpid()}{mark}{target.absolute().name}"


def seal(folder: Path, facts: dict[str, Any]) -> None:
    """Bring every file to the disk, then write the manifest, which makes the folder complete."""
    files = {name: {"size": path.stat().st_size, "sha256": file_digest(path)} for name, path in files_in(folder)}
    for _, path in files_in(folder):
        flush(path)
    (folder / MANIFEST).write_bytes(manifest_bytes({"format": FORMAT, "facts": facts, "files": files}))
    flush(folder / MANIFEST)
    for path in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        flush(path)


def move(folder: Path, target: Path) -> None:
    """Rename in place. A folder of ours that stood there is kept aside until then: `sweep` puts it back after a crash."""
    target, old = target.absolute(), beside(target, "~")
    refuse_foreign(target)
    if target.exists():
        set_aside(target) if is_damaged(target) else retire(target, old)
    folder.rename(target)
    flush(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def retire(target: Path, old: Path) -> None:
    shutil.rmtree(old, ignore_errors=True)
    target.rename(old)


def remove(directory: Path) -> None:
    """Delete a sealed directory, so that it is gone or whole whenever we are killed; one that is not surely ours stays."""
    if not directory.exists() or foreign(directory) is not None or is_damaged(directory):
        return
    old = beside(directory, "-")
    retire(directory.absolute(), old)
    shutil.rmtree(old, ignore_errors=True)


def foreign(directory: Path) -> Path | None:
    """The first thing at this place that we did not write. A manifest that is damaged cannot tell."""
    if not (directory / MANIFEST).is_file():
        return directory if directory.exists() or directory.is_symlink() else None
    try:
        known = {MANIFEST, *read_manifest(directory)["files"]}
    except DamagedError:
        return None
    return next((path for name, path in files_in(directory) if name not in known), None)


def refuse_foreign(target: Path) -> None:
    if (stranger := foreign(target)) is not None:
        raise UserError(f"{stranger}: regard did not write this, and {target} would be replaced; move it elsewhere first")


def is_damaged(directory: Path) -> bool:
    """Whether the manifest cannot say which files are ours."""
    try:
        return not read_manifest(directory)
    except DamagedError:
        return True


def set_aside(target: Path) -> Path:
    """Make room without deleting anything."""
    places = (target.with_name(f"damaged-{number}-{target.name}") for number in itertools.count(1))
    place = next(place for place in places if not place.exists())
    target.rename(place)
    return place


def flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def files_in(folder: Path) -> list[tuple[str, Path]]:
    paths = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return [(path.relative_to(folder).as_posix(), path) for path in paths]


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_bytes(content: dict[str, Any]) -> bytes:
    """The one way to write this content, closed by a checksum of itself."""
    digest = hashlib.sha256(canonical(content)).hexdigest()
    return canonical({**content, "seal": digest})


def canonical(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, sort_keys=True, indent=1, ensure_ascii=True) + "\n").encode()


def verify(directory: Path) -> dict[str, Any]:
    """The facts of a sealed directory whose every byte is as it was written; DamagedError otherwise."""
    manifest = read_manifest(directory)
    found = {name: path for name, path in files_in(directory) if name != MANIFEST}
    for name in sorted(manifest["files"].keys() ^ found.keys()):
        problem = "does not belong here" if name in found else "is missing"
        raise DamagedError(f"{directory / name}: the file {problem}")
    for name, expected in manifest["files"].items():
        compare(found[name], expected)
    facts: dict[str, Any] = manifest["facts"]
    return facts


def compare(path: Path, expected: dict[str, Any]) -> None:
    if path.is_symlink() or not path.is_file():
        raise DamagedError(f"{path}: not a plain file")
    size = path.stat().st_size
    if size != expected["size"]:
        raise DamagedError(f"{path}: damaged: {size} bytes instead of {expected['size']}")
    if file_digest(path) != expected["sha256"]:
        raise DamagedError(f"{path}: damaged: its checksum is not the one it was written with")


def read_manifest(directory: Path) -> dict[str, Any]:
    """The manifest, if it is byte for byte what `manifest_bytes` makes of its own content."""
    path = directory / MANIFEST
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read: {os.strerror(error.errno or 0)}") from None
    try:
        content = json.loads(raw)
        whole = manifest_bytes({key: value for key, value in content.items() if key != "seal"}) == raw
    except (ValueError, AttributeError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise DamagedError(f"{path}: damaged: its checksum is not the one it was written with")
    if content.get("format") != FORMAT:
        raise DamagedError(f"{path}: format {content.get('format')!r}; this version of regard reads format {FORMAT}")
    if not well_formed(content):
        raise DamagedError(f"{path}: not a manifest")
    return dict(content)


def well_formed(content: dict[str, Any]) -> bool:
    files, facts = content.get("files"), content.get("facts")
    if not isinstance(files, dict) or not isinstance(facts, dict):
        return False
    return all(isinstance(entry, dict) and entry.keys() == {"size", "sha256"} for entry in files.values())


def sweep(parent: Path) -> None:
    """Delete what killed writers left in `parent`; put back what they were about to replace."""
    for path in parent.absolute().glob(".tmp-*"):
        match = TEMPORARY.fullmatch(path.name)
        if match is None or path in writing or alive(int(match[1])):
            continue
        if match[2] == "~" and not (path.parent / match[3]).exists():
            path.rename(path.parent / match[3])
        else:
            shutil.rmtree(path, ignore_errors=True)


def alive(process: int) -> bool:
    """Whether another process has this id."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def lock(directory: Path) -> Iterator[None]:
    """Hold `directory` alone; a second process gets a UserError that names the first."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            file.seek(0)
            raise UserError(f"{directory}: in use by process {file.read().strip() or 'unknown'}") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
        file.truncate(0)
