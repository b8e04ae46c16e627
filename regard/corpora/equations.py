"""Word problems: `two times three times three equals` and `eighteen`."""

from collections.abc import Iterator
from random import Random

from regard.corpora.corpus import Corpus, Pair

ONES = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
SIGNS = ("plus", "plus", "minus", "times")
LARGEST, FACTOR, NUMBERS = 99, 9, (2, 2, 3)  # of an answer, of a factor, and how many numbers a problem has


def spelled(number: int) -> str:
    """Up to 99."""
    if number < 0:
        return f"minus {spelled(-number)}"
    if number < len(ONES):
        return ONES[number]
    tens, ones = divmod(number, 10)
    return TENS[tens - 2] if not ones else f"{TENS[tens - 2]} {ONES[ones]}"


def answer(numbers: list[int], signs: list[str]) -> int:
    """`times` binds more than `plus` and `minus`."""
    total, sign, product = 0, 1, numbers[0]
    for number, word in zip(numbers[1:], signs, strict=True):
        if word == "times":
            product *= number
        else:
            total, sign, product = total + sign * product, -1 if word == "minus" else 1, number
    return total + sign * product


def problems(seed: str) -> Iterator[Pair]:
    """Two or three numbers, whose answer lies between -99 and 99."""
    random = Random(seed).random
    while True:
        count = NUMBERS[int(random() * len(NUMBERS))]
        signs = [SIGNS[int(random() * len(SIGNS))] for _ in range(count - 1)]
        numbers = [int(random() * (FACTOR if "times" in signs or count > 2 else 50)) + 1 for _ in range(count)]
        if abs(found := answer(numbers, signs)) <= LARGEST:
            words = [spelled(numbers[0])]
            for sign, number in zip(signs, numbers[1:], strict=True):
                words += [sign, spelled(number)]
            yield Pair(f"{' '.join(words)} equals", spelled(found), ())


EQUATIONS = Corpus(
    name="equations",
    about="Sums, differences and products of two or three small numbers in words; no word alignments",
    source_suffix="problem",
    target_suffix="answer",
    sizes={"train": 6000, "valid": 300, "test": 300},
    draw=problems,
    joint=" ",
)
