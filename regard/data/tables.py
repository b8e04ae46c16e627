"""Tables of text: TSV, CSV and `source ||| target`; columns by number, or by name where the first row is a header."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from regard.data.faults import Fault
from regard.data.lines import BLOCK, CONVERT, read_lines, whole_lines
from regard.data.rows import FIRST, Columns, Rows, good_rows
from regard.errors import DataError

SEEN = 1 << 16  # bytes of a file that tell what separates its columns
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}  # of a CSV; spreadsheets write all of these
FIELD = 1 << 20  # characters of one field of a CSV; what is longer is a quote that nobody closed
BYTES = re.compile("[\udc80-\udcff]")  # how Python keeps bytes that are not UTF-8
Fields = list[list[str]]


class Block(NamedTuple):
    """Rows of a table that follow each other, cut into fields."""

    numbers: Sequence[int]  # the line where each begins
    fields: Fields
    bad: dict[int, str]  # what is wrong with some of them


def read_tsv(path: Path, columns: Columns) -> Iterator[Rows]:
    return read_table(path, columns, tsv_blocks(path), "tabs")


def read_csv(path: Path, columns: Columns) -> Iterator[Rows]:
    return read_table(path, columns, csv_blocks(path), DELIMITERS[delimiter_of(path)])


def read_moses(path: Path, columns: Columns) -> Iterator[Rows]:
    """What Moses and fast_align read: `source ||| target`."""
    return read_table(path, columns, separated(path, " ||| "), "|||")


def read_table(path: Path, columns: Columns, blocks: Iterator[Block], separators: str) -> Iterator[Rows]:
    if any(isinstance(column, int) and column < 0 for column in columns.values()):
        told = ", ".join(f"{name}: {column}" for name, column in columns.items())
        raise DataError(f"{path}: columns are counted from 0, so {told} cannot be read")
    header: list[str] = []
    if any(isinstance(column, str) for column in columns.values()):
        first = next(blocks, None)
        if first is None:
            return
        if first.numbers[0] in first.bad:
            raise DataError(f"{path}:{first.numbers[0]}: {first.bad[first.numbers[0]]}")
        header, rest = first.fields[0], Block(first.numbers[1:], first.fields[1:], first.bad)
        blocks = chain([rest], blocks)
    places, width = numbered(path, header, columns), None
    for block in blocks:
        # this file has as many columns as the first row that has those we need
        width = width or next((len(row) for row in block.fields if len(row) > max(places.values())), None)
        yield table_rows(path, block, places, width, separators)


def numbered(path: Path, header: list[str], columns: Columns) -> dict[str, int]:
    for column in columns.values():
        if isinstance(column, str) and column not in header:
            raise DataError(f"{path}:1: no column {column!r} in the header; it has {', '.join(map(repr, header))}")
    return {name: column if isinstance(column, int) else header.index(str(column)) for name, column in columns.items()}


def table_rows(path: Path, block: Block, places: Mapping[str, int], width: int | None, separators: str) -> Rows:
    bad = {number: Fault(path, number, problem) for number, problem in block.bad.items()}
    needed = max(places.values()) + 1
    for number, row in zip(block.numbers, block.fields, strict=True):
        if len(row) != width and number not in bad:
            bad[number] = Fault(path, number, ragged(len(row), width or needed, separators))
        if number in bad:
            row += [""] * needed
    columns = {name: [row[place] for row in block.fields] for name, place in places.items()}
    return good_rows(dict.fromkeys(places, path), columns, block.numbers, bad)


def ragged(found: int, width: int, separators: str) -> str:
    what = "a column is missing" if found < width else "a column too many"
    return f"{what}: {found} instead of {width} (columns are separated by {separators})"


def tsv_blocks(path: Path) -> Iterator[Block]:
    return separated(path, "\t")


def separated(path: Path, separator: str) -> Iterator[Block]:
    for lines in read_lines(path):
        numbers = range(lines.first, lines.first + len(lines.texts))
        yield Block(numbers, [text.split(separator) for text in lines.texts], lines.problems)


def first_rows(blocks: Iterator[Block]) -> Fields:
    """Of a table; none of one that begins with a bad row."""
    first = next(blocks, None)
    if first is None or first.numbers[0] in first.bad:
        return []
    return [row for number, row in zip(first.numbers[:FIRST], first.fields, strict=False) if number not in first.bad]


def csv_blocks(path: Path) -> Iterator[Block]:
    numbers, fields, bad, size = list[int](), Fields(), dict[int, str](), 0
    for number, row, problem in csv_rows(path):
        numbers.append(number)
        fields.append(row)
        bad |= {number: problem} if problem else {}
        size += sum(map(len, row))
        if size > BLOCK:
            yield Block(numbers, fields, bad)
            numbers, fields, bad, size = [], [], {}, 0
    if numbers:
        yield Block(numbers, fields, bad)


def csv_rows(path: Path) -> Iterator[tuple[int, list[str], str | None]]:
    """For each row the line where it begins, its fields, and what is wrong with it."""
    csv.field_size_limit(FIELD)
    rows = csv.reader(csv_lines(path), delimiter=delimiter_of(path), strict=True)
    while True:
        first = rows.line_num + 1
        try:
            row = next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end" in str(error) or "field limit" in str(error):  # what follows is lost: it all seems quoted
                told = f"a quote that is never closed, or a field of more than {FIELD:,} characters"
                raise DataError(f"{path}:{first}: the row that begins here has {told}") from None
            yield first, [], f"not CSV: {error} (up to line {rows.line_num}; a quote inside quotes is written twice)"
        else:
            yield first, row, not_utf8(row)


def delimiter_of(path: Path) -> str:
    """The first that cuts a CSV into columns; a comma if none does."""
    first = next(whole_lines(path), b"")
    return next((one for one in DELIMITERS if are_columns(first, one)), ",")


def are_columns(text: bytes, delimiter: str) -> bool:
    """Whether it cuts most lines into as many columns as the first one, which has two or more: the commas of prose do not."""
    lines = text[:SEEN].decode(errors="replace").split("\n")
    whole = lines if len(text) <= SEEN or len(lines) == 1 else lines[:-1]
    try:
        widths = [len(row) for row in csv.reader(whole, delimiter=delimiter) if row]
    except csv.Error:
        return False
    return bool(widths) and widths[0] > 1 and 2 * widths.count(widths[0]) > len(widths)


def csv_lines(path: Path) -> Iterator[str]:
    """Bytes that are not UTF-8 are kept, so that quotes around them count."""
    for block in whole_lines(path):
        for line in block.decode(errors="surrogateescape").split("\n"):
            yield line.removesuffix("\r") + "\n"


def not_utf8(row: list[str]) -> str | None:
    for column, text in enumerate(row):
        if not text.isascii() and (found := BYTES.search(text)):
            return f"not UTF-8: byte {ord(found[0]) - 0xDC00:#04x} in column {column}, counted from 0{CONVERT}"
    return None
