"""Which columns of a table are which: by their names, or by what stands in them."""

import re
from collections.abc import Callable, Sequence
from operator import contains
from pathlib import Path
from typing import NamedTuple

from regard.data.conll import CONLLU, first_tokens
from regard.data.jsonl import first_objects
from regard.data.parquet import first_batch
from regard.data.rows import Columns
from regard.data.tables import csv_blocks, first_rows, tsv_blocks
from regard.errors import DataError
from regard.recipe import Pairs

USUAL = {"source": 0, "target": 1}  # what a recipe says of columns if it says nothing
FEW = 10  # rows; fewer do not tell whether the one above them is a header whose names we do not know
# how the columns of pairs are called
PAIRS = [
    ("source", "target"), ("src", "tgt"), ("src", "trg"), ("instruction", "output"), ("input", "output"),
    ("question", "answer"), ("question", "query"), ("question", "sql"), ("prompt", "completion"), ("prompt", "response"),
    ("instruction", "response"), ("sentence", "translation"), ("text", "summary"), ("document", "summary"),
    ("article", "highlights"), ("text", "label"), ("sentence", "label"), ("text", "labels"), ("review", "sentiment"),
    ("utterance", "intent"), ("image", "caption"), ("image", "label"), ("file", "label"), ("tokens", "tags"), ("words", "tags"),
    ("form", "upos"),
]  # fmt: skip
LANGUAGES = {
    "ar", "cs", "da", "de", "el", "en", "es", "fi", "fr", "he", "hi", "hu", "it", "ja", "ko", "la", "nl", "no", "pl", "pt",
    "ro", "ru", "sv", "tr", "uk", "vi", "zh", "arabic", "chinese", "czech", "danish", "dutch", "english", "finnish", "french",
    "german", "greek", "hebrew", "hindi", "hungarian", "italian", "japanese", "korean", "latin", "norwegian", "polish",
    "portuguese", "romanian", "russian", "spanish", "swedish", "turkish", "ukrainian", "vietnamese",
}  # fmt: skip
KNOWN = {name for pair in PAIRS for name in pair} | LANGUAGES
NAME = re.compile(r"([^\W\d][\w.,/()#-]*( [\w.,/()#-]+){0,2})?")  # of a column; pandas gives its first none
IDENTIFIER = re.compile(r"|#|(?!class|label|categor)(.*[_ .-])?(id|idx|index|uuid|guid|nr\.?|unnamed: 0)", re.IGNORECASE)
WHOLE = re.compile(r"\d+")


class Head(NamedTuple):
    """How a table begins: the names of its columns, none where its first row may have them, and its first rows."""

    names: list[str]
    rows: list[list[str]]


class Found(NamedTuple):
    """Where columns are, and what to say of it."""

    columns: Columns
    note: str | None = None


def found_columns(files: Pairs, form: str) -> Found:
    """Columns that are given by number, by name where the table has names; the two of the pairs, if nobody says which."""
    columns = files.named
    if files.pairs is None or form not in HEADS or not all(isinstance(column, int) for column in columns.values()):
        return Found(columns)
    names, rows = with_header(HEADS[form](files.pairs)) if form in HEADED else HEADS[form](files.pairs)
    places = [int(column) for column in columns.values()]  # type: ignore[arg-type]
    if asked := dict(columns) == USUAL and not files.columns:
        places = pair_of(files.pairs, form, names, rows)
    if not names:
        note = counted(files.pairs, places, max(map(len, rows), default=0)) if asked else None
        return Found(dict(zip(columns, places, strict=True)), note)
    if not all(0 <= place < len(names) for place in places) or not (asked or form in HEADED):
        return Found(columns)
    chosen = dict(zip(columns, (names[place] for place in places), strict=True))
    return Found(chosen, named(files.pairs, form, chosen, names))


def with_header(head: Head) -> Head:
    """A table whose first row is a header, with its names."""
    return head if head.names or not head.rows or not is_header(*head.rows) else Head(head.rows[0], head.rows[1:])


def is_header(first: Sequence[str], *rest: Sequence[str]) -> bool:
    """Names of columns, each once: two that we know, or any that do not come again below, over a column of other things."""
    names = plain(first)
    while names and not names[-1]:  # spreadsheets leave empty columns at the right
        names.pop()
    if len(set(names)) < len(names) or len(names) < 2:
        return False
    if any({*pair} <= {*names} for pair in PAIRS):
        return True
    if not all(map(NAME.fullmatch, names)):
        return False
    if len(KNOWN.intersection(names)) > 1:
        return True
    columns = list(zip(*(plain(row)[: len(names)] for row in rest if len(row) == len(first)), strict=True))
    return (
        len(rest) >= FEW
        and len(columns) == len(names)
        and not any(map(contains, columns, names))
        and any(map(unlike, names, columns))
    )


def plain(row: Sequence[str]) -> list[str]:
    return [cell.strip().lower() for cell in row]


def unlike(name: str, values: Sequence[str]) -> bool:
    """Numbers, dates and file names below a name without digits; sentences below a word; labels, of which the name is none."""
    digits = sum(any(map(str.isdigit, value)) for value in values) >= 0.95 * len(values)
    words = [value.split() for value in values]
    sentences = sum(len(row) > 2 and sum(map(len, row)) > 3 * len(row) for row in words) >= 0.8 * len(values)
    few = len(set(values)) <= min(20, len(values) // 5)
    return (digits and not any(map(str.isdigit, name))) or (sentences and len(name.split()) < 3) or few


def pair_of(path: Path, form: str, names: list[str], rows: list[list[str]]) -> list[int]:
    """The places of source and target: by their names; or the first two that do not merely number or name the rows."""
    known = plain(names)
    for pair in PAIRS:
        if {*pair} <= {*known}:
            return [known.index(name) for name in pair]
    languages = [place for place, name in enumerate(known) if name in LANGUAGES]
    if len(languages) == 2:
        return languages
    width = len(names) or (len(rows[0]) if rows else 0)
    whole = [row for row in rows if len(row) == width]
    texts = [place for place in range(width) if not numbers_rows(known[place] if names else "a", [row[place] for row in whole])]
    if form == ".jsonl" and width not in (0, 2) and len(texts) != 2 and not {*USUAL} & {*names}:
        listed = ", ".join(map(repr, names[:20]))
        advice = inside(names[0], rows[0][0]) if width == 1 else ADVICE
        raise DataError(f"{path}:1: no keys 'source' and 'target'; the row has {listed}: {advice}")
    if width < 2:  # whoever reads it says so, with the line
        return [0, 1]
    return places_of(path, texts[:2] if width > 2 and len(texts) > 1 else [0, 1], names, whole)


def inside(name: str, value: str) -> str:
    """How to get at rows that are inside the only key; `messages` are in an array."""
    if value.startswith("["):
        return f"if turns of a talk are in it: jq -c '{{source: .{name}[0].content, target: .{name}[1].content}}' FILE > NEW"
    return f"if rows are inside it: jq -c '.{name}' FILE > NEW"


def places_of(path: Path, places: list[int], names: list[str], rows: Sequence[Sequence[str]]) -> list[int]:
    """These, if they hold something in most rows."""
    for place in (place for place in places if rows and place < len(rows[0])):
        if len(rows) >= FEW and sum(not row[place].strip() for row in rows) > len(rows) / 2:
            told = repr(names[place]) if names else place
            raise DataError(f"{path}: column {told} is empty in most rows, and would be read; {ADVICE}; {WORD_BY_WORD}")
    return places


def numbers_rows(name: str, values: Sequence[str]) -> bool:
    """Whether a column says which row it is, or the same of each, and nothing of what the row holds."""
    counts = len(values) > 2 and len(set(values)) > 0.9 * len(values) and all(map(WHOLE.fullmatch, values))
    return counts or IDENTIFIER.fullmatch(name) is not None or (len(values) >= FEW and len(set(values)) == 1)


def counted(path: Path, places: list[int], width: int) -> str | None:
    """What is said of a table without names whose rows have more columns than are read, where nobody named them."""
    if width <= len(places):
        return None
    told = ", ".join(f"{name}: {place}" for name, place in zip(USUAL, places, strict=True))
    return f"{path}: {width} columns, counted from 0 ({told}); {ADVICE.replace('NAME', 'NUMBER')}"


def named(path: Path, form: str, chosen: dict[str, str], names: list[str]) -> str | None:
    told = f"({', '.join(f'{name}: {given!r}' for name, given in chosen.items())})"
    told += f" of {', '.join(map(repr, names[:20]))}" if len(names) > len(chosen) else ""
    if form in HEADED:
        others = f"; {ADVICE}" if len(names) > len(chosen) else ""
        return f"{path}: its first row is a header {told}; if it is a row, write a header above it{others}"
    if all(name == given for name, given in chosen.items()):
        return None
    return f"{path}: columns by name {told}; {ADVICE}"


ADVICE = "--column source=NAME --column target=NAME say which to take"
WORD_BY_WORD = (
    "if every row is one word of a sentence, write words and tags with a tab between them and a blank line after each sentence "
    "into a file whose name ends in .conll"
)
# The tables whose columns may have names: a first row, which may be a header, or names of their own
HEADED = (".tsv", ".csv")
HEADS: dict[str, Callable[[Path], Head]] = {
    ".tsv": lambda path: Head([], first_rows(tsv_blocks(path))),
    ".csv": lambda path: Head([], first_rows(csv_blocks(path))),
    ".jsonl": lambda path: Head(*first_objects(path)),
    ".parquet": lambda path: Head(*first_batch(path)),
    ".conll": lambda path: Head([], first_tokens(path)),
    ".conllu": lambda path: Head(list(CONLLU), []),
}
