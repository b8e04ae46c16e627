"""The finished trials of an experiment, one JSON object a line. What is there is not run again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.corpora.files import write_lines
from regard.errors import DamagedError, UserError
from regard.training.journal import Journal

Key = tuple[str, ...]


class Ledger:
    """`names` are the fields that tell one trial from another."""

    def __init__(self, path: Path, names: tuple[str, ...]) -> None:
        self.names, self.served = names, 0
        self.done: dict[Key, dict[str, Any]] = {}
        whole = read_whole(path)
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                row = json.loads(line)
                self.done[self.key(row)] = row
            except (ValueError, KeyError, TypeError):
                raise DamagedError(f"{path}: line {number} is no row of a trial") from None
        self.journal = Journal(path, len(whole))

    def key(self, row: dict[str, Any]) -> Key:
        return tuple(str(row[name]) for name in self.names)

    def once(self, facts: dict[str, Any], run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The row of the trial that `facts` name: as it was written, or else run now and brought to the disk."""
        key = self.key(facts)
        if key not in self.done:
            row = {**facts, **run()}
            self.journal.write(**row)
            self.journal.settle()
            self.done[key] = row
        self.served += 1
        return self.done[key]

    def close(self) -> None:
        self.journal.close()


def read_whole(path: Path) -> bytes:
    """What is there, but for a last line that was cut off."""
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def claim(directory: Path, mark: str) -> None:
    """Refuse a directory that holds something and is no experiment: one has the file `mark`."""
    names = sorted(path.name for path in directory.iterdir()) if directory.exists() else []
    if mark not in names and (others := [name for name in names if name != ".lock"]):
        raise UserError(f"{directory}: no experiment of ours, and not empty (it holds {others[0]}); take another --out")


def agree(path: Path, facts: dict[str, Any]) -> None:
    """Write `facts` there, or refuse to go on with others than were written."""
    if not path.exists():
        write_lines(path, [json.dumps(facts, indent=1)])
    before = json.loads(path.read_text(encoding="utf-8"))
    for name in sorted(before.keys() | facts.keys()):
        if before.get(name) != facts.get(name):
            raise UserError(
                f"{path.parent}: was begun with {name}={before.get(name)}, not {facts.get(name)}; take another --out"
            )
