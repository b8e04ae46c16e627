"""Readers of pairs: parallel files, TSV, JSONL. They stream; every row is either yielded or reported as file:line."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.data.faults import BadRows as BadRows
from regard.data.faults import Fault as Fault
from regard.data.lines import Lines, read_lines
from regard.errors import DataError
from regard.recipe import Pairs

Columns = tuple[int | str, int | str]
HEADER = {"source", "target", "src", "tgt", "trg", "input", "output", "text", "sentence", "translation", "question", "answer"}
# Whatever is neither white space nor a format character (Unicode category Cf), which has no width.
SEEN = re.compile(
    "[^\\s\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"
    "\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)


class Rows(NamedTuple):
    """Good rows, the lines they stand in, and the faults of the rows between them."""

    sources: list[str]
    targets: list[str]
    lines: Sequence[int]
    faults: list[Fault]


def read_pairs(pairs: Pairs) -> Iterator[Rows]:
    """All rows, in blocks; DataError when a file cannot be read or holds no rows."""
    empty = True
    for rows in read_all(pairs):
        empty = empty and not rows.lines and not rows.faults
        yield rows
    if empty:
        raise DataError(f"{' and '.join(map(str, pairs.files))}: no rows")


def read_all(pairs: Pairs) -> Iterator[Rows]:
    if pairs.source is not None and pairs.target is not None:
        return read_parallel(pairs.source, pairs.target)
    assert pairs.pairs is not None, "Pairs.one_way"
    kind = kind_of(pairs.pairs)
    if kind not in READERS:
        raise DataError(f"{pairs.pairs}: unknown kind {kind!r}; a file of pairs ends in {', '.join(READERS)} (or .gz)")
    return READERS[kind](pairs.pairs, (pairs.source_column, pairs.target_column))


def kind_of(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix


def read_parallel(source: Path, target: Path) -> Iterator[Rows]:
    blocks = read_lines(source), read_lines(target)
    left, right = (next(block, None) for block in blocks)
    last = 0
    while left and right:
        count = min(len(left.texts), len(right.texts))
        (left_head, left_tail), (right_head, right_tail) = left.cut(count), right.cut(count)
        yield parallel_rows(source, target, left_head, right_head)
        last = left_head.first + count - 1
        left = left_tail if left_tail.texts else next(blocks[0], None)
        right = right_tail if right_tail.texts else next(blocks[1], None)
    yield from unmatched(source, left, blocks[0], target, last)
    yield from unmatched(target, right, blocks[1], source, last)


def parallel_rows(source: Path, target: Path, left: Lines, right: Lines) -> Rows:
    numbers = range(left.first, left.first + len(left.texts))
    bad: dict[int, Fault] = {}
    for path, problems in (target, right.problems), (source, left.problems):  # the source's problem is the one told
        bad |= {line: Fault(path, line, problem) for line, problem in problems.items() if line in numbers}
    return good_rows((source, target), left.texts, right.texts, numbers, bad)


def unmatched(longer: Path, lines: Lines | None, rest: Iterator[Lines], shorter: Path, count: int) -> Iterator[Rows]:
    """Every line past the end of the shorter file is a row without its other side."""
    problem = f"no line to go with it: {shorter} has only {count} lines"
    while lines:
        numbers = range(lines.first, lines.first + len(lines.texts))
        yield Rows([], [], [], [Fault(longer, number, problem) for number in numbers])
        lines = next(rest, None)


def read_tsv(path: Path, columns: Columns) -> Iterator[Rows]:
    if any(isinstance(column, int) and column < 0 for column in columns):
        raise DataError(f"{path}: columns are counted from 0, so {columns} cannot be read")
    blocks = read_lines(path)
    if any(isinstance(column, str) for column in columns):
        header = next(blocks, None)
        if header is None:
            return
        (names, rest), problem = header.cut(1), header.problems.get(1)
        if problem:
            raise DataError(f"{path}:1: {problem}")
        columns = named_columns(path, names.texts[0].split("\t"), columns)
        blocks = chain_block(rest, blocks)
    width = None
    for lines in blocks:
        fields = [text.split("\t") for text in lines.texts]
        width = width or first_width(fields, columns)
        yield tsv_rows(path, lines, fields, columns, width)


def chain_block(first: Lines, rest: Iterator[Lines]) -> Iterator[Lines]:
    yield first
    yield from rest


def taken_as_data(pairs: Pairs) -> str | None:
    """What to say of a TSV whose first row looks like a header, though columns are given by number."""
    columns = [column for column in (pairs.source_column, pairs.target_column) if isinstance(column, int)]
    if pairs.pairs is None or len(columns) < 2 or kind_of(pairs.pairs) != ".tsv":
        return None
    first = next(read_lines(pairs.pairs), None)
    row = first.texts[0].split("\t") if first is not None else []
    names = [row[column] for column in columns if 0 <= column < len(row)]
    if len(names) < 2 or not HEADER.issuperset(name.strip().lower() for name in names):
        return None
    return (
        f"{pairs.pairs}:1: the row {' and '.join(map(repr, names))} looks like a header and is used as a pair, for columns are "
        f"given by number; source_column={names[0]} and target_column={names[1]} make it a header"
    )


def named_columns(path: Path, names: list[str], columns: Columns) -> tuple[int, int]:
    for column in columns:
        if isinstance(column, str) and column not in names:
            raise DataError(f"{path}:1: no column {column!r} in the header; it has {', '.join(map(repr, names))}")
    source, target = (column if isinstance(column, int) else names.index(column) for column in columns)
    return source, target


def first_width(fields: list[list[str]], columns: Columns) -> int | None:
    """How many columns this file has: as many as the first row that has those we need."""
    return next((len(row) for row in fields if len(row) > max(int(column) for column in columns)), None)


def tsv_rows(path: Path, lines: Lines, fields: list[list[str]], columns: Columns, width: int | None) -> Rows:
    source, target = (int(column) for column in columns)
    numbers = range(lines.first, lines.first + len(fields))
    bad = {line: Fault(path, line, problem) for line, problem in lines.problems.items() if line in numbers}
    needed = max(source, target) + 1
    for number, row in zip(numbers, fields, strict=True):
        if len(row) != width and number not in bad:
            bad[number] = Fault(path, number, ragged(len(row), width or needed))
            row += [""] * (needed - len(row))
        elif number in bad:
            row += [""] * needed
    return good_rows((path, path), [row[source] for row in fields], [row[target] for row in fields], numbers, bad)


def ragged(found: int, width: int) -> str:
    what = "a column is missing" if found < width else "a column too many"
    return f"{what}: {found} instead of {width} (columns are separated by tabs)"


def read_jsonl(path: Path, columns: Columns) -> Iterator[Rows]:
    keys = [{0: "source", 1: "target"}.get(column, column) if isinstance(column, int) else column for column in columns]
    for key in keys:
        if not isinstance(key, str):
            raise DataError(f"{path}: column {key} of a JSONL file; give its key, for example source_column=text")
    for lines in read_lines(path):
        yield jsonl_rows(path, lines, str(keys[0]), str(keys[1]))


def jsonl_rows(path: Path, lines: Lines, source: str, target: str) -> Rows:
    numbers = range(lines.first, lines.first + len(lines.texts))
    bad = {line: Fault(path, line, problem) for line, problem in lines.problems.items() if line in numbers}
    sources, targets = [""] * len(numbers), [""] * len(numbers)
    for place, text in enumerate(lines.texts):
        if numbers[place] not in bad:
            try:
                sources[place], targets[place] = json_pair(text, source, target)
            except BadValue as problem:
                bad[numbers[place]] = Fault(path, numbers[place], str(problem))
    return good_rows((path, path), sources, targets, numbers, bad)


class BadValue(ValueError):
    """A line of JSON that holds no pair."""


def json_pair(text: str, source: str, target: str) -> tuple[str, str]:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadValue(f"not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError):
        raise BadValue("not JSON that can be read: too deep, or a number too long") from None
    if not isinstance(row, dict):
        raise BadValue(f"a JSON object is needed, not {json_kind(row)}")
    return json_text(row, source), json_text(row, target)


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


def good_rows(files: tuple[Path, Path], sources: list[str], targets: list[str], numbers: range, bad: dict[int, Fault]) -> Rows:
    """Take out the rows that are bad already, and those whose text on one side cannot be used."""
    for path, side, texts in (files[0], "source", sources), (files[1], "target", targets):
        for place, problem in text_problems(side, texts):
            bad.setdefault(numbers[place], Fault(path, numbers[place], problem))
    if not bad:
        return Rows(sources, targets, numbers, [])
    keep = [place for place, number in enumerate(numbers) if number not in bad]
    lines = [numbers[place] for place in keep]
    faults = [bad[number] for number in sorted(bad)]
    return Rows([sources[place] for place in keep], [targets[place] for place in keep], lines, faults)


def text_problems(side: str, texts: list[str]) -> Iterable[tuple[int, str]]:
    firsts = {text.strip()[:1] for text in texts}
    if all(map(SEEN.search, firsts)) and not any("\0" in text for text in texts):
        return
    for place, text in enumerate(texts):
        if SEEN.search(text) is None:
            yield place, f"the {side} is empty"
        elif "\0" in text:
            yield place, f"a NUL character in the {side}, at column {text.index(chr(0)) + 1}"


READERS: dict[str, Callable[[Path, Columns], Iterator[Rows]]] = {
    ".tsv": read_tsv,
    ".jsonl": read_jsonl,
}
