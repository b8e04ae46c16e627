"""Nested tags with random names, `<abc><de></de></abc>`, without end (Jozefowicz et al. 2015).

What an opening tag is called nobody can know; a closing tag repeats it, however much was opened and closed between.
"""

from collections.abc import Callable, Iterator
from random import Random
from string import ascii_lowercase

SHORTEST, LONGEST = 2, 10  # letters of a name, in the paper
ALPHABET = "</>" + ascii_lowercase


def letters(count: int, random: Callable[[], float]) -> str:
    return "".join(ascii_lowercase[int(random() * len(ascii_lowercase))] for _ in range(count))


def name(random: Callable[[], float], longest: int) -> str:
    return letters(SHORTEST + int(random() * (longest - SHORTEST + 1)), random)


def tags(seed: str, depth: int, longest: int = LONGEST) -> Iterator[str]:
    """Each step opens a tag or closes the innermost one, with equal chance; never more than `depth` are open."""
    random, opened = Random(seed).random, list[str]()
    while True:
        if opened and (len(opened) == depth or random() < 0.5):
            yield f"</{opened.pop()}>"
        else:
            opened.append(name(random, longest))
            yield f"<{opened[-1]}>"


def text(seed: str, length: int, depth: int, longest: int = LONGEST) -> str:
    """At least `length` characters, up to where the first tag after them that leaves none open ends."""
    parts, written, balance = list[str](), 0, 0
    for tag in tags(seed, depth, longest):
        parts.append(tag)
        written, balance = written + len(tag), balance + (-1 if tag[1] == "/" else 1)
        if written >= length and balance == 0:
            break
    return "".join(parts)
