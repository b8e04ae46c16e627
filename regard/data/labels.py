"""Columns of names: one for each row, or one for each token of the source."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

from regard.data.field import FEWEST, Field, FieldFitter, Problems, Shape
from regard.errors import UserError
from regard.problems import hint
from regard.recipe import Section


class LabelConfig(Section):
    kind: Literal["label"] = "label"


class Label(Field):
    """One of a set of names a row, numbered from 1: 0 is padding."""

    kind, form, what = "label", "single", "label"
    Config: ClassVar[type[Section]] = LabelConfig

    def __init__(self, names: Sequence[str], counts: Sequence[int] | None = None) -> None:
        self.names, self.largest = list(names), len(names) + 1
        self.counts = None if counts is None else list(counts)  # in the training rows; older versions did not keep them
        self.numbers = {name: number for number, name in enumerate(names, start=1)}

    @staticmethod
    def split(value: str) -> list[str]:
        return [value.strip()]

    @classmethod
    def fitter(cls, config: Any) -> FieldFitter:
        return NamesFitter(cls)

    @classmethod
    def outline(cls, config: Any) -> Shape:
        return Shape(cls.kind, (FEWEST,))

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, (len(self.names),))

    def encode(self, values: Sequence[str]) -> tuple[list[Any], Problems]:
        rows = [[self.numbers.get(name, 0) for name in self.split(value)] for value in values]
        unknown = (row for row, numbers in enumerate(rows) if not all(numbers))
        return rows, {row: self.problem(values[row]) for row in unknown}

    def problem(self, value: str) -> str:
        name = next(name for name in self.split(value) if name not in self.numbers)
        return f"the {self.what} {name!r:.60} is not one of training's; {hint(name, self.names)}"

    def decode(self, numbers: Iterable[int]) -> str:
        return " ".join(self.names[number - 1] for number in numbers)

    @property
    def known_counts(self) -> list[int]:
        if self.counts is None:
            raise UserError("class_weights need the counts of labels, and the model to start from did not keep them")
        return self.counts

    def facts(self) -> dict[str, Any]:
        return {"names": self.names} if self.counts is None else {"names": self.names, "counts": self.counts}

    @classmethod
    def restore(cls, facts: Mapping[str, Any]) -> "Label":
        names = facts["names"]
        if (
            not isinstance(names, list)
            or not names
            or not all(isinstance(name, str) and cls.split(name) == [name] for name in names)
        ):
            raise TypeError("its names are not such as a value is cut into")
        if len(set(names)) < len(names):
            raise ValueError("it has a name twice")
        counts = facts.get("counts")
        if counts is not None and ([type(count) for count in counts] != [int] * len(names) or min(counts) < 1):
            raise ValueError("its counts are not one for each name")
        return cls(names, counts)


class TagsConfig(Section):
    kind: Literal["tags"] = "tags"


class Tags(Label):
    """A name for each token of the source, separated by spaces."""

    kind, form, like, what = "tags", "plain", "source", "tag"
    Config: ClassVar[type[Section]] = TagsConfig

    @staticmethod
    def split(value: str) -> list[str]:
        return value.split()


class NamesFitter(FieldFitter):
    """The most frequent name first."""

    def __init__(self, field: type[Label]) -> None:
        self.field, self.counts = field, Counter[str]()

    def add(self, values: Sequence[str], column: str) -> None:
        for value in values:
            self.counts.update(self.field.split(value))

    def finish(self) -> Label:
        names = sorted(self.counts, key=lambda name: (-self.counts[name], name))
        return self.field(names, [self.counts[name] for name in names])
