"""What every kind of column can do: raw values to arrays, a shape for the model, save."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from regard.recipe import Section

FORMAT = 1
FEWEST = 8  # entries of a vocabulary that nobody has made yet
Problems = dict[int, str]  # by row, from 0


class Shape(NamedTuple):
    """What a model has to know of a column."""

    kind: str
    sizes: tuple[int, ...]  # of the vocabulary; the elements of a vector; height, width and channels of an image

    @property
    def told(self) -> str:
        return f"{self.kind} of {' x '.join(f'{size:,}' for size in self.sizes)}"


class FieldFitter(ABC):
    """Sees the values of training rows once, in bounded memory, and becomes a field. A column may be one of several."""

    @abstractmethod
    def add(self, values: Sequence[str], column: str) -> None: ...

    @abstractmethod
    def finish(self) -> "Field": ...


class Field(ABC):
    """The values of one column."""

    kind: ClassVar[str]
    Config: ClassVar[type[Section]]
    form: ClassVar[str]  # of batching.FORMS
    marks: ClassVar[int] = 0  # positions that the form adds to each row
    like: ClassVar[str | None] = None  # the column whose rows have as many positions
    features: tuple[int, ...] = ()  # of each position
    largest: int | None = None  # integers are below it; None: not integers
    width: ClassVar[str] = "<f4"  # of what is no integer
    has_words: ClassVar[bool] = False  # whether a position is a token, or begins with one
    from_files: ClassVar[bool] = False  # whether a value is the name of a file that holds what a model reads

    @classmethod
    @abstractmethod
    def fitter(cls, config: Any) -> FieldFitter: ...

    @classmethod
    @abstractmethod
    def outline(cls, config: Any) -> Shape:
        """A small shape, for a model that is outlined before any row has been read."""

    @classmethod
    def located(cls, values: list[str], folder: Path) -> list[str]:
        """Names of files are relative to the folder of the file that names them."""
        return values

    @classmethod
    def features_of(cls, shape: Shape) -> tuple[int, ...]:
        """`features` of a field of this shape."""
        return shape.sizes if cls.from_files else ()

    @property
    @abstractmethod
    def shape(self) -> Shape: ...

    @abstractmethod
    def encode(self, values: Sequence[str]) -> tuple[list[Any], Problems]:
        """Each row's positions, and what is wrong with some."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What `field.json` holds beside the kind."""

    @classmethod
    @abstractmethod
    def restore(cls, facts: Mapping[str, Any]) -> "Field": ...

    @property
    def description(self) -> str:
        return json.dumps({"format": FORMAT, "kind": self.kind, **self.facts()}, sort_keys=True) + "\n"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.description.encode()).hexdigest()

    def save(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        (path / "field.json").write_text(self.description, encoding="utf-8")
