"""What a table is, where its name does not say so: its format, by how it begins."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from regard.data.conll import CONLLU
from regard.data.lines import BYTE_ORDER_MARK, read_blocks, refuse_no_text
from regard.data.parquet import MAGIC
from regard.data.tables import DELIMITERS, SEEN, are_columns
from regard.errors import DataError


class Sign(NamedTuple):
    """How a table shows its format in how it begins."""

    name: str
    shows: Callable[[bytes], bool]
    because: str


def guessed(path: Path, told: Path | None = None) -> str:
    """The format of a file, which people know by the name `told`."""
    first = next(read_blocks(path), b"").removeprefix(BYTE_ORDER_MARK)
    refuse_no_text(told or path, first)
    for pattern, what in STRANGERS.items():
        if re.match(pattern, first):
            raise DataError(f"{told or path}: {what}")
    for form, sign in SIGNS.items():
        if sign.shows(first):
            return form
    raise DataError(f"{told or path}: {NO_TABLE if first else 'no rows'}")


def first_line(text: bytes) -> bytes:
    return text.partition(b"\n")[0]


def are_sentences(text: bytes) -> bool:
    """Lines of two or more columns, as many in each, and blank lines between some: tables have none, and prose is ragged."""
    lines = text[:SEEN].decode(errors="replace").rstrip().split("\n")
    whole = [line.strip() for line in (lines if len(text) <= SEEN else lines[:-1])]
    widths = {len(line.split("\t") if "\t" in line else line.split()) for line in whole if line}
    return "" in whole and len(whole) > 4 and len(widths) == 1 and 1 not in widths


def are_tags(path: Path) -> bool:
    """Sentences whose lines are one word and its tags, separated by tabs, as TSV has it too: no spaces, and tags that come
    again."""
    first = next(read_blocks(path), b"")
    lines = [line.split(b"\t") for line in first[:SEEN].split(b"\n")[:-1] if line.strip()]
    tags = {line[-1] for line in lines}
    return are_sentences(first) and b" " not in first[:SEEN] and b"\t" in first_line(first) and 2 * len(tags) < len(lines)


def are_trees(text: bytes) -> bool:
    """The first line that is no comment has ten columns and the number 1."""
    first = next((line for line in text[:SEEN].split(b"\n") if line.strip() and not line.startswith(b"#")), b"")
    return first.count(b"\t") == len(CONLLU) - 1 and re.match(rb"1(-\d+)?\t", first) is not None


def told_format(form: str) -> str:
    sign = SIGNS[form]
    return f"{sign.name}, for {sign.because} (a name that ends in {form} says so)"


# What begins as this Python pattern says is something else, and what to do
STRANGERS = {
    rb"\s*\[\s*[\[{\"]": "a JSON array, where one object per line is needed: jq -c '.[]' FILE > FILE.jsonl",
    rb"\s*\{\s*\n": "one JSON object over several lines, where one object per line is needed: "
    "jq -c '.data[]' FILE > FILE.jsonl, if its rows are in `data`",
    rb"\s*<[?!a-zA-Z]": "XML or HTML: write source and target into a table, separated by a tab",
}
NO_TABLE = (
    "not a table: its first line is not JSON and has no tab and no |||, and commas do not cut its lines into columns (nor do "
    "semicolons or bars); separate source and target by a tab, or give two files (--source and --target); one text to be "
    "continued is --text"
)
# What shows the format where the name does not say it; the first that fits
SIGNS: dict[str, Sign] = {
    ".parquet": Sign("Parquet", lambda text: text.startswith(MAGIC), "it begins with PAR1"),
    ".jsonl": Sign("JSONL", lambda text: text.lstrip().startswith(b"{"), "it begins with {"),
    ".moses": Sign("source ||| target", lambda text: b" ||| " in first_line(text), "its first line has |||"),
    ".conllu": Sign("CoNLL-U", are_trees, "its first token has the number 1 and ten columns"),
    ".conll": Sign("CoNLL", are_sentences, "its lines have as many columns each and blank lines between them"),
    ".tsv": Sign("TSV", lambda text: b"\t" in first_line(text), "its first line has a tab"),
    ".csv": Sign(
        "CSV", lambda text: any(are_columns(text, one) for one in DELIMITERS), "its lines have as many commas (or ; or |) each"
    ),
}
