"""The text of the word task: three files of the user's, or what our own generator writes."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.corpora import CORPORA, generate
from regard.data.lines import read_lines
from regard.errors import DataError


@dataclass(frozen=True)
class Texts:
    name: str  # for people
    train: Sequence[str]
    valid: Sequence[str]
    test: Sequence[str]

    @property
    def digest(self) -> str:
        whole = "\n\n".join("\n".join(lines) for lines in (self.train, self.valid, self.test))
        return hashlib.sha256(whole.encode()).hexdigest()


def from_files(train: Path, valid: Path, test: Path) -> Texts:
    return Texts(train.name, *(lines_of(path) for path in (train, valid, test)))


def lines_of(path: Path) -> list[str]:
    lines: list[str] = []
    for block in read_lines(path):
        for number, problem in block.problems.items():
            raise DataError(f"{path}:{number}: {problem}")
        lines += block.texts
    if not any(line.strip() for line in lines):
        raise DataError(f"{path}: there is no word in it")
    return lines


def generated(sentences: int) -> Texts:
    """The English side of the corpus `latin`."""
    splits = generate(CORPORA["latin"], seed=1, size=sentences)
    sides = ([pair.target for pair in splits[split]] for split in ("train", "valid", "test"))
    return Texts("generated English (regard corpora latin)", *sides)
