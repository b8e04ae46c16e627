"""The numbers of a recipe, each with bounds that no honest use meets and that stop what could only fail later."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

Positive = Annotated[int, Field(gt=0, le=1_000_000_000)]
Count = Annotated[int, Field(ge=0, le=1_000_000_000)]
Rate = Annotated[float, Field(ge=0, lt=1)]
Amount = Annotated[float, Field(ge=0, le=1_000_000)]  # by which one part of a loss or of a score counts
Temperature = Annotated[float, Field(ge=1e-6, le=1e6)]  # scores are divided by it
Column = Annotated[int, Field(gt=-1_000_000, lt=1_000_000)]  # who reads the file says what a negative one means
Seed = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Size = Annotated[int, Field(gt=0, le=1_048_576)]  # of a vector, or the length of a sequence
DEEPEST = 1_000
Depth = Annotated[int, Field(gt=0, le=DEEPEST)]  # layers
Tokens = Annotated[int, Field(gt=0, le=100_000_000)]  # of a batch, padding included
Width = Annotated[int, Field(gt=0, le=1_024)]  # of a beam, of a convolution


def openable(path: Path) -> Path:
    if "\0" in str(path) or len(str(path)) > 4096:
        raise ValueError("no file can have this name")
    return path


File = Annotated[Path, AfterValidator(openable)]


def nameable(columns: dict[str, int | str]) -> dict[str, int | str]:
    for name, place in columns.items():
        if not re.fullmatch("[a-z][a-z0-9_]{0,63}", name):
            raise ValueError(f"{name!r:.80} cannot name a column; take small letters, digits and _ (label, tags_2)")
        openable(Path(str(place)))
    return columns


Columns = Annotated[dict[str, Column | str], AfterValidator(nameable)]
