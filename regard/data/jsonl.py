"""Tables of JSON objects, one per line."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from regard.data.faults import Fault
from regard.data.lines import Lines, read_lines
from regard.data.rows import Columns, Rows, good_rows, key_of
from regard.errors import DataError


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
