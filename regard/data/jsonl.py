"""Tables of JSON objects, one per line."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from regard.data.faults import Fault
from regard.data.lines import Lines, read_lines
from regard.data.rows import FIRST, Columns, Rows, good_rows, key_of
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
                row = json_object(json_value(text))
                texts[-1] = [json_cell(row, key, name) for name, key in keys.items()]
            except BadValue as problem:
                bad[number] = Fault(path, number, str(problem))
    return good_rows(dict.fromkeys(keys, path), dict(zip(keys, map(list, zip(*texts, strict=True)), strict=True)), numbers, bad)


class BadValue(ValueError):
    """A line of JSON that holds no row."""


def first_objects(path: Path) -> tuple[list[str], list[list[str]]]:
    """The keys of the first row, none of one that is bad, and the values of the first rows as text."""
    lines = next(read_lines(path), None)
    objects = [] if lines is None else list(map(object_or_none, lines.texts[:FIRST]))
    if not objects or objects[0] is None:
        return [], []
    keys = list(objects[0])
    return keys, [[str(row.get(key, "")) for key in keys] for row in objects if row is not None]


def object_or_none(text: str) -> dict[str, object] | None:
    try:
        return json_object(json_value(text))
    except BadValue:
        return None


def json_value(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise BadValue(f"not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError):
        raise BadValue("not JSON that can be read: too deep, or a number too long") from None


def json_object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise BadValue(f"a JSON object is needed, not {json_kind(value)}")
    return value


def json_cell(row: dict[str, object], key: str, name: str) -> str:
    """Of tokens or tags in an array, the text that spaces separate; of an output that is a whole number or a truth value, as
    JSON writes it."""
    value = row.get(key)
    if isinstance(value, list):
        return " ".join(map(one_token, value))
    return json.dumps(value) if isinstance(value, int) and name != "source" else json_text(row, key)


def one_token(value: object) -> str:
    """Of an array of tokens or tags."""
    text = str(value) if type(value) is int else value
    if not isinstance(text, str) or text.split() != [text]:
        raise BadValue(f"{value!r:.40} in an array of tokens is empty, has spaces in it, or is {json_kind(value)}")
    return text


def json_line(row: Mapping[str, object]) -> str:
    """One line to every reader, also to those that cut at U+0085, U+2028 and U+2029; half a surrogate pair becomes `?`."""
    text = json.dumps(row, ensure_ascii=False).translate({0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"})
    return text.encode(errors="replace").decode() + "\n"


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
