"""What a file of pairs holds, seen in one pass: what a model is chosen from. Rows that may be held out are not looked into."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.faults import Fault
from regard.data.readers import read_rows
from regard.data.scripts import UNSPACED
from regard.data.store import held_out_number, line_hashes
from regard.data.suspicious import ratio, suspicious_rows
from regard.errors import DataError
from regard.recipe import Pairs

SAMPLE = 20_000  # rows that are looked into
SHOWN = 3  # bad rows that are named
LETTERS = 2_000  # distinct characters whose script is looked up
WHITE = re.compile(r"^\s|\s$|\s\s|[^\S ]")  # white space that splitting at spaces and joining again would lose
NAME = re.compile(r"\w+")
OPERATORS = "()[]{}<>=+*/\\_&|^%$#@~`"
NUMBER = re.compile(r"[-+]?\d+([.,]\d+)*")
DIGIT = re.compile(r"\d")


class Spread(NamedTuple):
    """Of one number for each row."""

    mean: float
    most: float  # 99 of 100 rows have no more
    longest: float


class ColumnFacts(NamedTuple):
    """One column of text."""

    characters: Spread
    words: Spread  # what spaces separate
    letters_in_word: float  # characters of a word, on average
    longest_word: float  # the share of a row's characters that are in its longest word, on average
    alphabet: int  # distinct characters
    scripts: dict[str, float]  # the share of letters in each script
    vocabulary: int  # distinct words
    new_words: float  # the share of words in a tenth of the different rows that the others do not have
    distinct: int  # values
    unspaced: float  # the share of characters of scripts that put no spaces between words
    signs: float  # the share of characters, without white space, that are neither letters nor digits
    operators: float  # the same of signs that are no punctuation of sentences: brackets, =, <, _ ...
    white: float  # the share of rows with indentation, tabs, line ends, or several spaces in a row
    numbers: float  # the share of rows that are a number and nothing else
    commonest: float  # the share of rows that have the most frequent value
    numbered: float  # the share of the distinct words that have digits in them


class Survey(NamedTuple):
    """The rows, their columns, and how the two columns go together."""

    rows: int  # good ones
    bad: int
    faults: list[Fault]  # the first of the bad ones
    shifted: bool  # a line is missing in some file: rows may not belong together
    looked_at: int  # rows: none that training holds out
    suspicious: int  # of these
    suspects: list[Fault]  # the first of them
    repeated: float  # the share of rows that stand more than once
    many_targets: float  # the share of sources that have several targets
    same: float  # the share of rows whose columns are equal
    copied_words: float  # the share of the target's words that stand in its source
    copied_letters: float  # the same of its characters, three in a row
    copied_names: float  # the same of its runs of letters and digits
    equal_words: float  # the share of rows with as many words on both sides
    ratio: Spread  # the target's length over the source's, in characters
    longest_ratio: dict[str, float]  # the same, the largest but for one row in a thousand, by unit
    by_place: float  # how much of the target's words those in the same places of the source tell, from 0 to 1
    columns: dict[str, ColumnFacts]
    letters: int = 0  # of one text alone, which is counted and not looked into

    @property
    def alone(self) -> bool:
        """One text without another beside it."""
        return not self.columns

    @property
    def turned(self) -> "Survey":
        """With its columns the other way round; what goes from one to the other is left as it is."""
        return self._replace(columns={"source": self.target, "target": self.source})

    @property
    def source(self) -> ColumnFacts:
        return self.columns["source"]

    @property
    def target(self) -> ColumnFacts:
        return self.columns["target"]


class Sampled:
    """The rows whose lines have the largest hashes; those with the smallest may be held out, and are never among them."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rows, self.count, self.floor = seed, list[tuple[int, int, tuple[str, str]]](), 0, 0

    def add(self, lines: Sequence[int], sources: Sequence[str], targets: Sequence[str]) -> None:
        self.count += len(lines)
        hashes = line_hashes(np.asarray(lines, np.int64), self.seed)
        kept = np.flatnonzero(hashes >= np.uint64(self.floor)).tolist()
        self.rows += [(int(hashes[place]), lines[place], (sources[place], targets[place])) for place in kept]
        if len(self.rows) > 2 * SAMPLE:
            self.rows = sorted(self.rows, reverse=True)[:SAMPLE]
            self.floor = self.rows[-1][0]

    def pairs(self, held_out: int | None) -> list[tuple[int, tuple[str, str]]]:
        """With their lines. A quarter more than training holds out is left aside: some rows may prove too long, and others
        take their place."""
        aside = held_out_number(self.count, held_out)
        most = max(min(SAMPLE, self.count - aside - aside // 4), 1)
        return [(line, pair) for _, line, pair in sorted(self.rows, reverse=True)[:most]]


def survey(files: Pairs, held_out: int | None = None, seed: int = 1) -> Survey:
    """`held_out` and `seed` are those of training: rows that these keep aside are counted and not looked into."""
    sampled, bad, faults, shifted = Sampled(seed), 0, list[Fault](), False
    for rows in read_rows(files):
        shifted = shifted or not all(fault.alone for fault in rows.faults)
        bad, faults = bad + len(rows.faults), (faults + rows.faults)[:SHOWN]
        sampled.add(rows.lines, rows.columns["source"], rows.columns["target"])
    if bad >= sampled.count:
        used = f"only {sampled.count:,} rows" if sampled.count else "no row"
        first = f"; the first: {faults[0]}" if faults else ""
        raise DataError(f"{' and '.join(map(str, files.files))}: {used} can be used; bad rows: {bad:,}{first}")
    seen = sampled.pairs(held_out)
    pairs = [pair for _, pair in seen]
    odd = sorted((seen[place][0], problem) for place, problem in suspicious_rows(pairs))
    suspects = [Fault(files.file_of("source"), line, problem) for line, problem in odd[:SHOWN]]
    return Survey(sampled.count, bad, faults, shifted, len(pairs), len(odd), suspects, **facts_of_pairs(pairs))


def count_text(files: Pairs) -> Survey:
    """Of one text, which is not looked into: its lines, and its characters with the line ends."""
    lines = letters = bad = 0
    faults = list[Fault]()
    for rows in read_rows(files):
        lines, letters = lines + len(rows.lines), letters + sum(len(text) + 1 for text in rows.columns["target"])
        bad, faults = bad + len(rows.faults), (faults + rows.faults)[:SHOWN]
    none = dict.fromkeys(("repeated", "many_targets", "same", "copied_words", "copied_letters", "copied_names"), 0.0)
    between = {"equal_words": 0.0, "ratio": Spread(0, 0, 0), "longest_ratio": dict[str, float](), "by_place": 0.0}
    return Survey(lines, bad, faults, False, 0, 0, [], **none, **between, columns={}, letters=letters)  # type: ignore[arg-type]


def facts_of_pairs(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    distinct, number = len(set(pairs)), len(pairs)
    words = [(source.split(), target.split()) for source, target in pairs]
    return {
        "repeated": 1 - distinct / number,
        "many_targets": 1 - len(set(sources)) / distinct,
        "same": share(source == target for source, target in pairs),
        "copied_words": found_in(words),
        "copied_letters": found_in([(three(source), three(target)) for source, target in pairs]),
        "copied_names": found_in([(NAME.findall(source), NAME.findall(target)) for source, target in pairs]),
        "equal_words": share(len(source) == len(target) for source, target in words),
        "by_place": told_by_place([row for row in words if len(row[0]) == len(row[1])]),
        "ratio": spread_of(map(ratio, pairs)),
        "longest_ratio": {"characters": longest_ratio(pairs), "words": longest_ratio(words)},
        "columns": {
            "source": column_facts(sources, [source for source, _ in dict.fromkeys(pairs)]),
            "target": column_facts(targets, [target for _, target in dict.fromkeys(pairs)]),
        },
    }


def told_by_place(rows: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    """Of the words that the most frequent one gets wrong in every tenth row, the share that the usual companion of the word in
    the same place, as the other rows have them, gets right."""
    known, usual = dict[str, Counter[str]](), Counter[str]()
    for source, target in (row for at, row in enumerate(rows) if at % 10):
        usual.update(target)
        for word, tag in zip(source, target, strict=True):
            known.setdefault(word, Counter())[tag] += 1
    asked = [pair for source, target in rows[::10] for pair in zip(source, target, strict=True)]
    most = max(usual, key=usual.__getitem__, default="")
    wrong = sum(tag != most for _, tag in asked)
    left = sum(tag != (known[word].most_common(1)[0][0] if word in known else most) for word, tag in asked)
    return max(1 - left / wrong, 0.0) if wrong else 0.0


def share(found: Any) -> float:
    values = list(map(bool, found))
    return sum(values) / max(len(values), 1)


def three(text: str) -> list[str]:
    """Characters, three in a row; a shorter text is one of its own."""
    return [text[at : at + 3] for at in range(max(len(text) - 2, 1))]


def found_in(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    """The share of what the second sequences hold that the first of the same row has too."""
    found = sum((Counter(target) & Counter(source)).total() for source, target in pairs)
    return found / max(sum(len(target) for _, target in pairs), 1)


def longest_ratio(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    """Of lengths that count the end mark, as decoding's limit does; but for one row in a thousand, which may be no pair."""
    ratios = sorted((len(target) + 1) / (len(source) + 1) for source, target in pairs)
    return ratios[-1 - len(ratios) // 1000]


def column_facts(texts: Sequence[str], of_different_rows: Sequence[str]) -> ColumnFacts:
    """Words of a row that comes again are known from the first time, and tell nothing of rows that are new."""
    words = [text.split() for text in texts]
    letters = Counter[str]()
    for text in texts:
        letters.update(text)
    total = max(letters.total(), 1)
    vocabulary = Counter(word for row in words for word in row)
    spelled = sum(len(word) * count for word, count in vocabulary.items())
    return ColumnFacts(
        characters=spread(texts),
        words=spread(words),
        letters_in_word=spelled / max(vocabulary.total(), 1),
        longest_word=float(np.mean([max(map(len, row), default=0) / max(sum(map(len, row)), 1) for row in words])),
        alphabet=len(letters),
        scripts=scripts(letters),
        vocabulary=len(vocabulary),
        new_words=new_words([text.split() for text in of_different_rows]),
        distinct=len(set(texts)),
        unspaced=sum(count for letter, count in letters.items() if UNSPACED.match(letter)) / total,
        signs=1 - sum(count for letter, count in letters.items() if letter.isalnum()) / max(spelled, 1),
        operators=sum(letters[sign] for sign in OPERATORS) / max(spelled, 1),
        white=share(WHITE.search(text) is not None for text in texts),
        numbers=share(NUMBER.fullmatch(text.strip()) is not None for text in texts),
        commonest=max(Counter(texts).values(), default=0) / max(len(texts), 1),
        numbered=share(DIGIT.search(word) is not None for word in vocabulary),
    )


def spread(rows: Sequence[Sequence[str]]) -> Spread:
    return spread_of(map(len, rows))


def spread_of(numbers: Iterable[float]) -> Spread:
    values: npt.NDArray[np.float64] = np.fromiter(numbers, np.float64)
    return Spread(float(values.mean()), float(np.percentile(values, 99)), float(values.max()))


def new_words(rows: Sequence[Sequence[str]]) -> float:
    """Every tenth row against the others."""
    known = {word for place, row in enumerate(rows) if place % 10 for word in row}
    asked = [word for row in rows[::10] for word in row]
    return sum(word not in known for word in asked) / max(len(asked), 1) if known else 1.0


def scripts(letters: Counter[str]) -> dict[str, float]:
    """By the first word of a letter's Unicode name (LATIN, CYRILLIC, CJK ...), the most frequent first."""
    found = Counter[str]()
    for letter, count in letters.most_common(LETTERS):
        if letter.isalpha():
            found[unicodedata.name(letter, "OTHER").split()[0]] += count
    return {name: count / found.total() for name, count in found.most_common(5)}


def plain_facts(found: Survey) -> dict[str, Any]:
    """For JSON."""
    columns = {name: facts._asdict() for name, facts in found.columns.items()}
    for facts in columns.values():
        facts |= {key: facts[key]._asdict() for key in ("characters", "words")}
    told = {key: list(map(str, getattr(found, key))) for key in ("faults", "suspects")}
    return {**found._asdict(), **told, "ratio": found.ratio._asdict(), "columns": columns}
