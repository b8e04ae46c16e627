"""What a table is, where its name does not say so: its format, by how it begins, and which of its columns are which."""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from regard.data.conll import CONLLU
from regard.data.jsonl import first_keys
from regard.data.lines import BYTE_ORDER_MARK, read_blocks, refuse_no_text
from regard.data.parquet import MAGIC, column_names
from regard.data.rows import Columns
from regard.data.tables import csv_blocks, first_row, tsv_blocks
from regard.errors import DataError

SEEN = 1 << 16  # bytes of a file that tell whether it is a table
USUAL = {"source": 0, "target": 1}  # what a recipe says of columns if it says nothing
# how the columns of pairs are called
PAIRS = [
    ("source", "target"), ("src", "tgt"), ("src", "trg"), ("input", "output"), ("question", "answer"), ("prompt", "completion"),
    ("sentence", "translation"), ("text", "summary"), ("document", "summary"),
    ("text", "label"), ("sentence", "label"), ("tokens", "tags"), ("words", "tags"), ("form", "upos"),
]  # fmt: skip
HEADER = {name for pair in PAIRS for name in pair} | {"label", "tags"}
LANGUAGES = {
    "ar", "cs", "de", "el", "en", "es", "fi", "fr", "hu", "it", "ja", "ko", "la", "nl", "pl", "pt", "ru", "sv", "tr", "zh",
}  # fmt: skip


class Sign(NamedTuple):
    """How a table shows its format in how it begins."""

    name: str
    shows: Callable[[bytes], bool]
    because: str


class Found(NamedTuple):
    """Where columns are, and what to say of it."""

    columns: Columns
    note: str | None = None


def guessed(path: Path, told: Path | None = None) -> str:
    """The format of a file, which people know by the name `told`."""
    first = next(read_blocks(path), b"").removeprefix(BYTE_ORDER_MARK)
    refuse_no_text(told or path, first)
    for form, sign in SIGNS.items():
        if sign.shows(first):
            return form
    raise DataError(f"{told or path}: {not_a_table(first)}")


def first_line(text: bytes) -> bytes:
    return text.partition(b"\n")[0]


def are_columns(text: bytes) -> bool:
    """Whether commas cut most lines into as many columns as the first one, which has two or more: those of prose do not."""
    lines = text[:SEEN].decode(errors="replace").split("\n")
    whole = lines if len(text) <= SEEN or len(lines) == 1 else lines[:-1]
    try:
        widths = [len(row) for row in csv.reader(whole) if row]
    except csv.Error:
        return False
    return bool(widths) and widths[0] > 1 and 2 * widths.count(widths[0]) > len(widths)


def are_sentences(text: bytes) -> bool:
    """Lines of two or more columns, as many in each, and blank lines between some: tables have none, and prose is ragged."""
    lines = text[:SEEN].decode(errors="replace").rstrip().split("\n")
    whole = [line.strip() for line in (lines if len(text) <= SEEN else lines[:-1])]
    widths = {len(line.split("\t") if "\t" in line else line.split()) for line in whole if line}
    return "" in whole and len(whole) > 4 and len(widths) == 1 and 1 not in widths


def are_trees(text: bytes) -> bool:
    """The first line that is no comment has ten columns and the number 1."""
    first = next((line for line in text[:SEEN].split(b"\n") if line.strip() and not line.startswith(b"#")), b"")
    return first.count(b"\t") == len(CONLLU) - 1 and re.match(rb"1(-\d+)?\t", first) is not None


def not_a_table(first: bytes) -> str:
    """What it is instead, and what to do."""
    if not first:
        return "no rows"
    for start, what in STRANGERS.items():
        if first.lstrip().startswith(start):
            return what
    return (
        "not a table: its first line is not JSON and has no tab and no |||, and commas do not cut its lines into columns; "
        "separate source and target by a tab, or give two files (--source and --target)"
    )


def told_format(form: str) -> str:
    sign = SIGNS[form]
    return f"{sign.name}, for {sign.because} (a name that ends in {form} says so)"


def found_columns(path: Path, form: str, columns: Columns) -> Found:
    """Columns that are given by number, by their names where the table has names that we know or no more than two."""
    if form not in HEADINGS or not all(isinstance(column, int) for column in columns.values()):
        return Found(columns)
    heading = HEADINGS[form](path)
    by_name = {name.strip().lower(): name for name in reversed(heading)}
    if dict(columns) == USUAL:
        for source, target in PAIRS:
            if source in by_name and target in by_name:
                return named(path, form, {"source": by_name[source], "target": by_name[target]})
    places = [int(column) for column in columns.values()]  # type: ignore[arg-type]
    cells = [heading[place] for place in places if 0 <= place < len(heading)]
    if form in HEADED and len(cells) == len(places) and is_header([cell.strip().lower() for cell in cells]):
        return named(path, form, dict(zip(columns, cells, strict=True)))
    if form not in HEADED and dict(columns) == USUAL and heading:
        return two_of(path, form, columns, heading)
    return Found(columns)


def is_header(cells: list[str]) -> bool:
    """Names of columns, or of two languages."""
    return len(set(cells)) == len(cells) and (HEADER.issuperset(cells) or (len(cells) > 1 and LANGUAGES.issuperset(cells)))


def named(path: Path, form: str, names: dict[str, str]) -> Found:
    told = ", ".join(f"{name}: {given!r}" for name, given in names.items())
    if form in HEADED:
        return Found(names, f"{path}: its first row is a header ({told})")
    return Found(names, None if all(name == given for name, given in names.items()) else f"{path}: columns by name ({told})")


def two_of(path: Path, form: str, columns: Columns, heading: list[str]) -> Found:
    """The first is the source and the second the target, if there are two."""
    listed, advice = ", ".join(map(repr, heading[:20])), "--column source=NAME --column target=NAME say which to take"
    if len(heading) == 2:
        return Found(
            dict(zip(columns, heading, strict=True)), f"{path}: source: {heading[0]!r}, target: {heading[1]!r} ({advice})"
        )
    if form == ".parquet" and len(heading) > 2:
        return Found(columns, f"{path}: source: {heading[0]!r}, target: {heading[1]!r} of {listed} ({advice})")
    if not {"source", "target"} & set(heading):
        raise DataError(f"{path}:1: no keys 'source' and 'target'; the row has {listed}: {advice}")
    return Found(columns)


STRANGERS = {
    b"[": "a JSON array, where one object per line is needed: jq -c '.[]' FILE > FILE.jsonl",
}
# What shows the format where the name does not say it; the first that fits
SIGNS: dict[str, Sign] = {
    ".parquet": Sign("Parquet", lambda text: text.startswith(MAGIC), "it begins with PAR1"),
    ".jsonl": Sign("JSONL", lambda text: text.lstrip().startswith(b"{"), "it begins with {"),
    ".moses": Sign("source ||| target", lambda text: b" ||| " in first_line(text), "its first line has |||"),
    ".conllu": Sign("CoNLL-U", are_trees, "its first token has the number 1 and ten columns"),
    ".conll": Sign("CoNLL", are_sentences, "its lines have as many columns each and blank lines between them"),
    ".tsv": Sign("TSV", lambda text: b"\t" in first_line(text), "its first line has a tab"),
    ".csv": Sign("CSV", are_columns, "its first line has a comma and no tab"),
}
# The names that columns may have: a first row, which may be a header, or names of their own
HEADED = (".tsv", ".csv")
HEADINGS: dict[str, Callable[[Path], list[str]]] = {
    ".tsv": lambda path: first_row(tsv_blocks(path)),
    ".csv": lambda path: first_row(csv_blocks(path)),
    ".jsonl": first_keys,
    ".parquet": column_names,
    ".conllu": lambda path: list(CONLLU),
}
