"""Rows as a program holds them: pairs, columns, data frames; written to a file, as a run reads and keeps them."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.readers import READERS, suffix_of
from regard.errors import DataError, UserError, refuse

TAKES = (
    "{0} is a list of (source, target) pairs of str, a data frame, the name of a table, "
    'or a dict of files such as {{"source": "a.txt", "target": "b.txt"}}'
)
FILES = ("source", "target", "pairs", "text", "alignment")  # keys of a dict whose values are names of files


def is_table(path: Path) -> bool:
    """Whether a name means a file of rows; others mean recipes."""
    return suffix_of(path) in READERS or (path.is_file() and path.suffix not in (".yaml", ".yml"))


def section_of(given: object, name: str, folder: Path) -> dict[str, Any]:
    """The rows as a recipe names them: in their files, or in one that is written to `folder`. Nothing of None."""
    if given is None:
        return {}
    if isinstance(given, str | os.PathLike):
        return {"pairs": os.path.abspath(given)}
    if isinstance(given, Mapping) and all(isinstance(given[key], str | os.PathLike) for key in FILES if key in given):
        return {key: os.path.abspath(value) if key in FILES else value for key, value in given.items()}
    path = folder / f"{name}.jsonl"
    write_rows(path, rows_of(given, name), name)
    return {"pairs": str(path)}


def write_rows(path: Path, rows: Iterable[tuple[str, str]], name: str) -> None:
    """Row n is line n. What is no text is left for the reader to report, as it is in files."""
    with path.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        for source, target in rows:
            file.write(json.dumps({"source": source, "target": target}, ensure_ascii=False) + "\n")
    if not path.stat().st_size:
        raise DataError(f"{name}: no rows; give at least one (source, target) pair")


def rows_of(given: Any, name: str) -> Iterator[tuple[str, str]]:
    columns = columns_of(given, name)
    if columns is None and (isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable)):
        refuse(TAKES.format(name), "this", given)
    for index, row in enumerate(given if columns is None else zip(*columns, strict=True)):
        pair = (row.get("source"), row.get("target")) if isinstance(row, Mapping) else row
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            refuse(TAKES.format(name), f"{name}[{index}]", row)
        for side, text in zip(("source", "target"), pair, strict=True):
            if not isinstance(text, str):
                refuse(TAKES.format(name), f"the {side} of {name}[{index}]", text)
        yield pair[0], pair[1]


def columns_of(given: Any, name: str) -> list[list[Any]] | None:
    """Of a data frame or a dict of columns, source and target; None of other things. pandas and polars name their columns
    `columns`, pyarrow and datasets `column_names`; whatever else is a stream of Arrow batches goes through pyarrow."""
    if not isinstance(given, Mapping) and not hasattr(given, "columns") and hasattr(given, "__arrow_c_stream__"):
        given = arrow_table(given, name)
    names = given.keys() if isinstance(given, Mapping) else getattr(given, "column_names", getattr(given, "columns", None))
    if names is None or callable(names):
        return None
    source, target = two_of(list(names), name)
    columns = [listed(given[source]), listed(given[target])]
    if len(columns[0]) != len(columns[1]):
        raise DataError(f"{name}: {len(columns[0])} values of {source!r} and {len(columns[1])} of {target!r}; give as many")
    return columns


def two_of(names: list[Any], name: str) -> tuple[Any, Any]:
    chosen = ("source", "target") if {"source", "target"} <= set(names) else tuple(names)
    if len(chosen) == 2 and all(names.count(one) == 1 for one in chosen):
        return chosen[0], chosen[1]
    told = ", ".join(map(repr, names[:20])) or "none"
    raise DataError(
        f"{name}: columns named 'source' and 'target' are needed, or exactly two; this has {told}: choose two of them"
    )


def listed(column: Any) -> list[Any]:
    """As Python's own values: to_pylist of pyarrow, to_list of polars and pandas."""
    found = next((getattr(column, one) for one in ("to_pylist", "to_list", "tolist") if hasattr(column, one)), None)
    return list(column) if found is None else list(found())


def arrow_table(given: Any, name: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UserError(f"{name}: a stream of Arrow batches needs pyarrow: pip install 'regard[data]'") from None
    return pyarrow.table(given)
