"""Where the rows of a data set are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from regard.bounds import Column, Columns, File


class Section(BaseModel):
    """A part of a recipe: frozen, typed, closed."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)


class Pairs(Section):
    """Where rows are: parallel files, one for each column, one table of them all (`pairs`), or one `text` whose lines, even
    empty ones, are a `target` each. `.gz` may follow any name."""

    source: File | None = None
    target: File | None = None
    pairs: File | None = None
    text: File | None = None
    source_column: Column | str | None = 0  # of the table; null by default where there are `columns`
    target_column: Column | str | None = 1
    columns: Columns = {}  # further ones by name: a column of the table, or a file with one value per line
    alignment: File | None = None  # gold links in Pharaoh format, i-j sure and i?j or ipj possible
    boxes: File | None = None  # in images, of what words of the target name: word:left,top,right,bottom in pixels

    @model_validator(mode="before")
    @classmethod
    def only_named(cls, values: Any) -> Any:
        named = isinstance(values, Mapping) and values.get("columns")
        return {"source_column": None, "target_column": None, **values} if named else values

    @model_validator(mode="after")
    def one_way(self) -> "Pairs":
        ways = (self.source or self.target, self.pairs, self.text)
        if set(self.named) <= {"source"} or sum(one is not None for one in ways) > 1:
            raise ValueError(
                "name either `source` and `target` (two files) or `pairs` (one table); `columns` names further columns. "
                "A language model has a `text` instead"
            )
        for name, place in self.columns.items():
            if name in self.usual:
                raise ValueError(f"columns.{name}: there is a `{name}` beside it already; name it once")
            if self.pairs is None and isinstance(place, int):
                raise ValueError(f"columns.{name}: {place} is a column of a table, and there is no `pairs`; name a file")
        return self

    @property
    def usual(self) -> dict[str, int | str | Path]:
        files = (self.source, self.target if self.text is None else self.text)
        places = files if self.pairs is None else (self.source_column, self.target_column)
        return {name: place for name, place in zip(("source", "target"), places, strict=True) if place is not None}

    @property
    def named(self) -> dict[str, int | str | Path]:
        """Every column by name: the column of the table, or the file."""
        return {**self.usual, **{name: place if self.pairs else Path(str(place)) for name, place in self.columns.items()}}

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.pairs,) if self.pairs else tuple(map(self.file_of, self.named))

    def file_of(self, column: str) -> Path:
        return self.pairs or Path(str(self.named[column]))


def as_in_training(files: Mapping[str, Any], train: Any) -> dict[str, Any]:
    """A table whose columns nobody names has those that were named of the training table."""
    named = train.get("columns") if isinstance(train, Mapping) and train.get("pairs") else None
    known = not named or "pairs" not in files or files.keys() & {"columns", "source_column", "target_column"}
    return dict(files) if known else {**files, "columns": named}
