"""Readers of named columns: parallel files, TSV, JSONL. They stream; every row is either yielded or reported as file:line."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from regard.data.faults import BadRows as BadRows
from regard.data.faults import Fault as Fault
from regard.data.lines import Lines, read_lines
from regard.errors import DataError
from regard.recipe import Pairs

Place = int | str | Path
Columns = Mapping[str, Place]  # where the column of that name is in the table
Texts = dict[str, list[str]]
HEADER = {"source", "target", "src", "tgt", "trg", "input", "output", "text", "sentence", "translation", "question", "answer"}
# Whatever is neither white space nor a format character (Unicode category Cf), which has no width.
SEEN = re.compile(
    "[^\\s\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)


class Rows(NamedTuple):
    """Good rows, the lines they stand in, and the faults of the rows between them."""

    columns: Texts
    lines: Sequence[int]
    faults: list[Fault]


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


def read_tsv(path: Path, columns: Columns) -> Iterator[Rows]:
    if any(isinstance(column, int) and column < 0 for column in columns.values()):
        told = ", ".join(f"{name}: {column}" for name, column in columns.items())
        raise DataError(f"{path}: columns are counted from 0, so {told} cannot be read")
    blocks, header = read_lines(path), list[str]()
    if any(isinstance(column, str) for column in columns.values()):
        first = next(blocks, None)
        if first is None:
            return
        (names, rest), problem = first.cut(1), first.problems.get(1)
        if problem:
            raise DataError(f"{path}:1: {problem}")
        header, blocks = names.texts[0].split("\t"), chain([rest], blocks)
    places, width = numbered(path, header, columns), None
    for lines in blocks:
        fields = [text.split("\t") for text in lines.texts]
        width = width or first_width(fields, max(places.values()) + 1)
        yield tsv_rows(path, lines, fields, places, width)


def taken_as_data(files: Pairs) -> str | None:
    """What to say of a TSV whose first row looks like a header, though columns are given by number."""
    columns = {name: column for name, column in files.named.items() if isinstance(column, int)}
    if files.pairs is None or len(columns) < len(files.named) or kind_of(files.pairs) != ".tsv":
        return None
    first = next(read_lines(files.pairs), None)
    row = first.texts[0].split("\t") if first is not None else []
    names = {name: row[column] for name, column in columns.items() if 0 <= column < len(row)}
    if len(names) < len(columns) or not HEADER.issuperset(name.strip().lower() for name in names.values()):
        return None
    keys = " and ".join(f"{key_of(name)}={given}" for name, given in names.items())
    return (
        f"{files.pairs}:1: the row {' and '.join(map(repr, names.values()))} looks like a header and is used as data, for "
        f"columns are given by number; {keys} make it a header"
    )


def key_of(column: str) -> str:
    """The key that says where the column of this name is in a table."""
    return f"{column}_column" if column in ("source", "target") else f"columns.{column}"


def numbered(path: Path, header: list[str], columns: Columns) -> dict[str, int]:
    for column in columns.values():
        if isinstance(column, str) and column not in header:
            raise DataError(f"{path}:1: no column {column!r} in the header; it has {', '.join(map(repr, header))}")
    return {name: column if isinstance(column, int) else header.index(str(column)) for name, column in columns.items()}


def first_width(fields: list[list[str]], needed: int) -> int | None:
    """How many columns this file has: as many as the first row that has those we need."""
    return next((len(row) for row in fields if len(row) >= needed), None)


def tsv_rows(path: Path, lines: Lines, fields: list[list[str]], places: Mapping[str, int], width: int | None) -> Rows:
    numbers = range(lines.first, lines.first + len(fields))
    bad = {line: Fault(path, line, problem) for line, problem in lines.problems.items() if line in numbers}
    needed = max(places.values()) + 1
    for number, row in zip(numbers, fields, strict=True):
        if len(row) != width and number not in bad:
            bad[number] = Fault(path, number, ragged(len(row), width or needed))
            row += [""] * (needed - len(row))
        elif number in bad:
            row += [""] * needed
    return good_rows(
        dict.fromkeys(places, path), {name: [row[at] for row in fields] for name, at in places.items()}, numbers, bad
    )


def ragged(found: int, width: int) -> str:
    what = "a column is missing" if found < width else "a column too many"
    return f"{what}: {found} instead of {width} (columns are separated by tabs)"


def read_jsonl(path: Path, columns: Columns) -> Iterator[Rows]:
    keys: dict[str, str] = {}
    for name, column in columns.items():
        usual = {0: "source", 1: "target"}.get(column) if isinstance(column, int) and name in ("source", "target") else None
        if isinstance(column, int) and usual is None:
            raise DataError(f"{path}: column {column} of a JSONL file; give its key, for example {key_of(name)}=text")
        keys[name] = usual or str(column)
    for lines in read_lines(path):
        yield jsonl_rows(path, lines, keys)


def jsonl_rows(path: Path, lines: Lines, keys: Mapping[str, str]) -> Rows:
    numbers = range(lines.first, lines.first + len(lines.texts))
    bad = {line: Fault(path, line, problem) for line, problem in lines.problems.items() if line in numbers}
    texts = []
    for number, text in zip(numbers, lines.texts, strict=True):
        texts.append([""] * len(keys))
        if number not in bad:
            try:
                texts[-1] = json_texts(text, keys.values())
            except BadValue as problem:
                bad[number] = Fault(path, number, str(problem))
    return good_rows(dict.fromkeys(keys, path), dict(zip(keys, map(list, zip(*texts, strict=True)), strict=True)), numbers, bad)


class BadValue(ValueError):
    """A line of JSON that holds no row."""


def json_texts(text: str, keys: Iterable[str]) -> list[str]:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadValue(f"not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError):
        raise BadValue("not JSON that can be read: too deep, or a number too long") from None
    if not isinstance(row, dict):
        raise BadValue(f"a JSON object is needed, not {json_kind(row)}")
    return [json_text(row, key) for key in keys]


def json_text(row: dict[str, object], key: str) -> str:
    if key not in row:
        raise BadValue(f"no key {key!r}; the row has {', '.join(map(repr, list(row)[:5])) or 'none'}")
    value = row[key]
    if not isinstance(value, str):
        raise BadValue(f"{key!r} must be text, not {json_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadValue(f"{key!r} holds half of a surrogate pair, which is not text") from None
    return value


def json_kind(value: object) -> str:
    kinds = {
        bool: "a truth value",
        int: "a number",
        float: "a number",
        list: "an array",
        dict: "an object",
        str: "text",
    }
    return kinds.get(type(value), "null")


def good_rows(files: Mapping[str, Path], columns: Texts, numbers: range, bad: dict[int, Fault]) -> Rows:
    """Take out the rows that are bad already, and those whose text in one column cannot be used."""
    for name, texts in columns.items():
        for place, problem in text_problems(name, texts):
            bad.setdefault(numbers[place], Fault(files[name], numbers[place], problem))
    if not bad:
        return Rows(columns, numbers, [])
    keep = [place for place, number in enumerate(numbers) if number not in bad]
    kept = {name: [texts[place] for place in keep] for name, texts in columns.items()}
    return Rows(kept, [numbers[place] for place in keep], [bad[number] for number in sorted(bad)])


def text_problems(column: str, texts: list[str]) -> Iterable[tuple[int, str]]:
    firsts = {text.strip()[:1] for text in texts}
    if all(map(SEEN.search, firsts)) and not any("\0" in text for text in texts):
        return
    for place, text in enumerate(texts):
        if SEEN.search(text) is None:
            yield place, f"the {column} is empty"
        elif "\0" in text:
            yield place, f"a NUL character in the {column}, at column {text.index(chr(0)) + 1}"


READERS: dict[str, Callable[[Path, Columns], Iterator[Rows]]] = {
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
}
