"""Readers of named columns: parallel files, or a table. They stream; every row is either yielded or reported as file:line."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from regard.data.faults import BadRows as BadRows
from regard.data.faults import Fault as Fault
from regard.data.jsonl import read_jsonl
from regard.data.lines import Lines, read_lines
from regard.data.parquet import read_parquet
from regard.data.rows import Columns, good_rows, key_of
from regard.data.rows import Rows as Rows
from regard.data.tables import HEADED, read_csv, read_tsv
from regard.errors import DataError
from regard.recipe import Pairs

HEADER = {
    "source",
    "target",
    "src",
    "tgt",
    "trg",
    "input",
    "output",
    "text",
    "sentence",
    "translation",
    "question",
    "answer",
    "label",
    "tags",
}


def read_rows(files: Pairs) -> Iterator[Rows]:
    """All rows, in blocks, each with all columns; DataError when a file cannot be read or holds no rows."""
    empty = True
    for rows in read_all(files):
        empty = empty and not rows.lines and not rows.faults
        yield rows
    if empty:
        raise DataError(f"{' and '.join(map(str, files.files))}: no rows")


def read_all(files: Pairs) -> Iterator[Rows]:
    if files.pairs is None:
        return read_parallel({name: files.file_of(name) for name in files.named})
    kind = kind_of(files.pairs)
    if kind not in READERS:
        raise DataError(f"{files.pairs}: unknown kind {kind!r}; a file of pairs ends in {', '.join(READERS)} (or .gz)")
    return READERS[kind](files.pairs, files.named)


def kind_of(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix


def read_parallel(files: Mapping[str, Path]) -> Iterator[Rows]:
    """Line n of every file is row n."""
    blocks = {name: read_lines(path) for name, path in files.items()}
    ahead = {name: lines for name in files if (lines := next(blocks[name], None))}
    last = 0
    while len(ahead) == len(files):
        count = min(len(lines.texts) for lines in ahead.values())
        cut = {name: lines.cut(count) for name, lines in ahead.items()}
        yield parallel_rows(files, {name: head for name, (head, _) in cut.items()})
        last += count
        rest = {name: tail if tail.texts else next(blocks[name], None) for name, (_, tail) in cut.items()}
        ahead = {name: lines for name, lines in rest.items() if lines}
    yield from unmatched(files, ahead, blocks, last)


def parallel_rows(files: Mapping[str, Path], columns: Mapping[str, Lines]) -> Rows:
    first = next(iter(columns.values()))
    numbers = range(first.first, first.first + len(first.texts))
    bad: dict[int, Fault] = {}
    for name in reversed(list(columns)):  # of several problems the first column's is told
        problems = columns[name].problems.items()
        bad |= {line: Fault(files[name], line, problem) for line, problem in problems if line in numbers}
    return good_rows(files, {name: lines.texts for name, lines in columns.items()}, numbers, bad)


def unmatched(
    files: Mapping[str, Path], ahead: Mapping[str, Lines], rest: Mapping[str, Iterator[Lines]], last: int
) -> Iterator[Rows]:
    """A line past the end of the shortest file is a row without some column: one fault, however many files have it."""
    shortest = next((path for name, path in files.items() if name not in ahead), None)
    problem = f"no line to go with it: {shortest} has only {last} lines"
    for name in ahead:
        for lines in chain([ahead[name]], rest[name]):
            numbers = range(max(lines.first, last + 1), lines.first + len(lines.texts))
            yield Rows({name: [] for name in files}, [], [Fault(files[name], number, problem) for number in numbers])
            last = max(last, lines.first + len(lines.texts) - 1)


def taken_as_data(files: Pairs) -> str | None:
    """What to say of a table whose first row looks like a header, though columns are given by number."""
    columns = {name: column for name, column in files.named.items() if isinstance(column, int)}
    if files.pairs is None or len(columns) < len(files.named) or kind_of(files.pairs) not in HEADED:
        return None
    first = next(HEADED[kind_of(files.pairs)](files.pairs), None)
    row = first.fields[0] if first is not None else []
    names = {name: row[column] for name, column in columns.items() if 0 <= column < len(row)}
    if len(names) < len(columns) or not HEADER.issuperset(name.strip().lower() for name in names.values()):
        return None
    keys = " and ".join(f"{key_of(name)}={given}" for name, given in names.items())
    return (
        f"{files.pairs}:1: the row {' and '.join(map(repr, names.values()))} looks like a header and is used as data, for "
        f"columns are given by number; {keys} make it a header"
    )


READERS: dict[str, Callable[[Path, Columns], Iterator[Rows]]] = {
    ".tsv": read_tsv,
    ".csv": read_csv,
    ".jsonl": read_jsonl,
    ".parquet": read_parquet,
}
