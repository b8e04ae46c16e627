"""Dates as people write them, and as ISO 8601 does: `the 5th of March 1999` and `1 9 9 9 - 0 3 - 0 5`."""

from collections.abc import Iterator
from random import Random

from regard.corpora.corpus import Corpus, Pair

MONTHS = (
    ("January", 31), ("February", 28), ("March", 31), ("April", 30), ("May", 31), ("June", 30), ("July", 31),
    ("August", 31), ("September", 30), ("October", 31), ("November", 30), ("December", 31),
)  # fmt: skip
FORMS = (  # {d} the day, {o} with its ending, {m} the month's number, {M} its name, {S} its first three letters
    "{d} {M} {y}", "{M} {d} , {y}", "the {o} of {M} {y}", "{S} {d} , {y}", "{d} {S} {y}", "{d} . {m} . {y}",
    "{y} / {m} / {d}", "{M} the {o} , {y}", "on {d} {M} in the year {y}",
)  # fmt: skip
FIRST_YEAR, YEARS = 1600, 500


def leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def ordinal(day: int) -> str:
    ending = "th" if day in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(day % 10, "th")
    return f"{day}{ending}"


def dates(seed: str) -> Iterator[Pair]:
    """All days of five centuries alike, in all forms. Digits of numbers are words of their own."""
    random = Random(seed).random
    while True:
        year, month = FIRST_YEAR + int(random() * YEARS), int(random() * 12)
        name, days = MONTHS[month]
        day = 1 + int(random() * (days + (month == 1 and leap(year))))
        form = FORMS[int(random() * len(FORMS))]
        parts = {"d": spaced(day), "o": ordinal(day), "m": spaced(month + 1), "M": name, "S": name[:3], "y": spaced(year)}
        yield Pair(form.format(**parts), f"{spaced(year)} - {spaced(f'{month + 1:02}')} - {spaced(f'{day:02}')}", ())


def spaced(number: int | str) -> str:
    return " ".join(str(number))


DATES = Corpus(
    name="dates",
    about="Dates of five centuries in nine forms, and as ISO 8601 writes them; no word alignments",
    source_suffix="date",
    target_suffix="iso",
    sizes={"train": 10000, "valid": 300, "test": 300},
    draw=dates,
)
