"""Sentences with one token per line and a blank line after each: CoNLL's columns, and CoNLL-U's ten."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import dropwhile, islice
from pathlib import Path
from typing import NamedTuple

from regard.data.faults import Fault
from regard.data.lines import read_lines
from regard.data.rows import FIRST, Columns, Rows, good_rows
from regard.errors import DataError
from regard.problems import hint

CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
GIVEN = ("upos", "xpos")  # columns whose `_` says that nobody wrote them; in others it says that there is nothing
SPACE = "\N{OPEN BOX}"  # stands for a space inside a token: spaces separate tokens
ROWS = 1 << 12  # sentences of a block
DOCUMENT = ("-DOCSTART-", "#begin document", "#end document")  # begin the lines between documents of CoNLL 2003 and 2012


class Token(NamedTuple):
    """A line that is no comment, cut into columns; or what is wrong with it."""

    line: int
    cells: list[str]
    problem: str | None = None


Sentence = list[Token]
Cut = Callable[[int, str], Token | None]  # a line -> its token; None where it holds none


def read_conll(path: Path, columns: Columns) -> Iterator[Rows]:
    """Columns by number, from 0, or from the right as -1; separated by tabs, or by spaces where there is no tab."""
    for name, column in columns.items():
        if not isinstance(column, int):
            raise DataError(f"{path}: column {column!r} of a CoNLL file; give its number, for example --column {name}=-1")
    places = {name: int(column) for name, column in columns.items()}  # type: ignore[arg-type]
    return blocks(path, places, cut_columns)


def read_conllu(path: Path, columns: Columns) -> Iterator[Rows]:
    """Columns by name. Comments, multiword ranges (3-4: their words follow) and empty nodes (5.1) are left out."""
    places = dict[str, int]()
    for name, column in columns.items():
        key = CONLLU[column] if isinstance(column, int) and 0 <= column < len(CONLLU) else str(column)
        if key not in CONLLU:
            raise DataError(f"{path}: no column {key!r} in CoNLL-U; {hint(key, CONLLU)}")
        places[name] = CONLLU.index(key)
    return blocks(path, places, cut_conllu, CONLLU)


def blocks(path: Path, places: dict[str, int], cut: Cut, names: Sequence[str] = ()) -> Iterator[Rows]:
    some: list[Sentence] = []
    for sentence in sentences(path, cut):
        some.append(without_comments(sentence))
        if len(some) == ROWS:
            yield rows_of(path, places, some, names)
            some = []
    if some:
        yield rows_of(path, places, some, names)


def first_tokens(path: Path) -> list[list[str]]:
    """The columns of the first tokens."""
    tokens = (token.cells for sentence in sentences(path, cut_columns) for token in sentence if token.problem is None)
    return list(islice(tokens, FIRST))


def sentences(path: Path, cut: Cut) -> Iterator[Sentence]:
    tokens: Sentence = []
    for lines in read_lines(path):
        for number, text in enumerate(lines.texts, start=lines.first):
            if problem := lines.problems.get(number):
                tokens.append(Token(number, [], problem))
            elif text.strip():
                token = cut(number, text)
                tokens += [] if token is None else [token]
            elif tokens:
                yield tokens
                tokens = []
    if tokens:
        yield tokens


def without_comments(sentence: Sentence) -> Sentence:
    """Lines above a sentence that begin with # and are no token: a # that is one has as many columns as the others."""
    width = len(sentence[-1].cells)
    return list(dropwhile(lambda token: "".join(token.cells).startswith("#") and len(token.cells) != width, sentence))


def cut_columns(line: int, text: str) -> Token | None:
    return None if text.startswith(DOCUMENT) else Token(line, text.split("\t") if "\t" in text else text.split())


def cut_conllu(line: int, text: str) -> Token | None:
    cells = text.split("\t")
    if text.startswith("#") or re.fullmatch(r"\d+-\d+|\d+\.\d+", cells[0]):
        return None
    if len(cells) != len(CONLLU):
        return Token(line, [], f"{len(cells)} columns instead of {len(CONLLU)} (CoNLL-U separates columns by tabs)")
    return Token(line, cells)


def rows_of(path: Path, places: dict[str, int], some: Sequence[Sentence], names: Sequence[str]) -> Rows:
    """A row is told by the line of its first token."""
    numbers, bad = [sentence[0].line for sentence in some], dict[int, Fault]()
    columns: dict[str, list[str]] = {name: [] for name in places}
    for number, sentence in zip(numbers, some, strict=True):
        told = ((token.line, problem(at, sentence, places, names)) for at, token in enumerate(sentence))
        if fault := next((Fault(path, line, what) for line, what in told if what is not None), None):
            bad[number] = fault
        for name, place in places.items():
            cells = [] if number in bad else [written(token.cells[place]) for token in sentence]
            columns[name].append(" ".join(cells))
    return good_rows(dict.fromkeys(places, path), columns, numbers, bad)


def written(cell: str) -> str:
    return cell.strip(" ").replace(" ", SPACE)


def problem(at: int, sentence: Sentence, places: dict[str, int], names: Sequence[str]) -> str | None:
    """What is wrong with a token: its columns, what is not written in them, or, where columns have names, its id."""
    (_, cells, told), width = sentence[at], len(sentence[0].cells)
    if told is not None:
        return told
    if width and len(cells) != width:
        return f"{len(cells)} columns instead of {width}, as the sentence's first token has (line {sentence[0].line})"
    if names and cells[0] != str(at + 1):
        return f"the token's id is {cells[0]!r:.20} where {at + 1} is expected: a line is missing, or one is there twice"
    for name, place in places.items():
        if not -len(cells) <= place < len(cells):
            return f"no column {place} for the {name}: there are {len(cells)}, counted from 0 (or from the right, -1)"
        if written(cells[place]).split() != [written(cells[place])]:
            return f"nothing is written for the {name}, or white space that is no space"
        if names and names[place] in GIVEN and cells[place] == "_":
            return f"the {names[place]} of {cells[1]!r:.40} is not given (_)"
    return None
