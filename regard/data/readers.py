"""Readers of named columns: parallel files, or a table. They stream; every row is either yielded or reported as file:line."""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from regard.data.columns import found_columns
from regard.data.conll import read_conll, read_conllu
from regard.data.faults import BadRows as BadRows
from regard.data.faults import Fault as Fault
from regard.data.files import array_lines
from regard.data.folder import holds_images, read_folder
from regard.data.formats import are_tags, guessed, told_format
from regard.data.jsonl import read_jsonl
from regard.data.lines import Lines, read_lines, without_packing
from regard.data.parquet import read_parquet
from regard.data.rows import Columns, good_rows
from regard.data.rows import Rows as Rows
from regard.data.tables import DELIMITERS, delimiter_of, read_csv, read_moses, read_tsv
from regard.errors import DataError
from regard.recipe import Pairs


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
        return read_parallel({name: files.file_of(name) for name in files.named}, empty=files.text is not None)
    if holds_images(files.pairs):
        return read_folder(files.pairs, files.named)
    form = format_of(files.pairs)
    return READERS[form](files.pairs, found_columns(files, form).columns)


def columns_of(files: Pairs) -> Columns:
    """Where each column is: of a table by its names, or by what stands in it."""
    if files.pairs is None or holds_images(files.pairs):
        return files.named
    return found_columns(files, format_of(files.pairs)).columns


def format_of(path: Path) -> str:
    """By its name, or else by its content; sentences of words and tags are called TSV too."""
    if suffix_of(path) not in READERS and path.is_dir():
        raise DataError(f"{path}: {FOLDER}")
    if suffix_of(path) == ".tsv" and are_tags(path):
        return ".conll"
    return suffix if (suffix := suffix_of(path)) in READERS else guessed(path)


def suffix_of(path: Path) -> str:
    return Path(without_packing(path.name)).suffix.lower()


def notes(files: Pairs) -> list[str]:
    """What was found out of a table and not said by anybody: its format, its header, which columns it has."""
    if files.pairs is None or holds_images(files.pairs):
        return []
    form = format_of(files.pairs)
    told = [] if form in files.pairs.name.lower() else [f"{files.pairs}: read as {told_format(form)}"]
    if form == ".csv" and (delimiter := delimiter_of(files.pairs)) != ",":
        told.append(f"{files.pairs}: its columns are separated by {DELIMITERS[delimiter]}")
    note = found_columns(files, form).note
    return told if note is None else [*told, note]


def read_parallel(files: Mapping[str, Path], empty: bool = False) -> Iterator[Rows]:
    """Line n of every file is row n, and so is row n of an array (`.npy`); `empty` lines are rows too."""
    blocks = {name: array_lines(path) if path.suffix == ".npy" else read_lines(path) for name, path in files.items()}
    ahead = {name: lines for name in files if (lines := next(blocks[name], None))}
    last = 0
    while len(ahead) == len(files):
        count = min(len(lines.texts) for lines in ahead.values())
        cut = {name: lines.cut(count) for name, lines in ahead.items()}
        yield parallel_rows(files, {name: head for name, (head, _) in cut.items()}, empty)
        last += count
        rest = {name: tail if tail.texts else next(blocks[name], None) for name, (_, tail) in cut.items()}
        ahead = {name: lines for name, lines in rest.items() if lines}
    yield from unmatched(files, ahead, blocks, last)


def parallel_rows(files: Mapping[str, Path], columns: Mapping[str, Lines], empty: bool) -> Rows:
    first = next(iter(columns.values()))
    numbers = range(first.first, first.first + len(first.texts))
    bad: dict[int, Fault] = {}
    for name in reversed(list(columns)):  # of several problems the first column's is told
        problems = columns[name].problems.items()
        bad |= {line: Fault(files[name], line, problem) for line, problem in problems if line in numbers}
    return good_rows(files, {name: lines.texts for name, lines in columns.items()}, numbers, bad, empty)


def unmatched(
    files: Mapping[str, Path], ahead: Mapping[str, Lines], rest: Mapping[str, Iterator[Lines]], last: int
) -> Iterator[Rows]:
    """A line past the end of the shortest file is a row without some column: one fault, however many files have it. If it is
    not blank, any row before it may be the one that lacks something."""
    shortest = next((path for name, path in files.items() if name not in ahead), None)
    problem = f"no line to go with it: {shortest} has only {last} lines"
    for name in ahead:
        for lines in chain([ahead[name]], rest[name]):
            numbers = range(max(lines.first, last + 1), lines.first + len(lines.texts))
            alone = [not text.strip() for text in lines.texts[numbers.start - lines.first :]]
            faults = [Fault(files[name], number, problem, one) for number, one in zip(numbers, alone, strict=True)]
            yield Rows({name: [] for name in files}, [], faults)
            last = max(last, lines.first + len(lines.texts) - 1)


FOLDER = (
    "a directory, in which no image (.png, .jpg ...) stands: one where each image has its text beside it (cat.png, cat.txt) is "
    "read; of a folder for each class write a table of image names and classes beside them; otherwise name a file of text"
)
READERS: dict[str, Callable[[Path, Columns], Iterator[Rows]]] = {
    ".tsv": read_tsv,
    ".csv": read_csv,
    ".moses": read_moses,
    ".jsonl": read_jsonl,
    ".parquet": read_parquet,
    ".conll": read_conll,
    ".conllu": read_conllu,
}
