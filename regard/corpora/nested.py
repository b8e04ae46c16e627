"""Texts whose cells are worth a look: tags, quotations and code that open and close; each token is tagged with what is open."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from random import Random

from regard.corpora import xml
from regard.corpora.corpus import Corpus, Pair

SAYINGS = ["yes", "no", "perhaps", "never", "always", "soon", "later", "now"]
PEOPLE = ["she", "he", "Ann", "Bob", "they", "somebody"]
VERBS = ["says", "asks", "shouts", "whispers", "writes"]
NAMES = ["a", "b", "c", "x", "y", "z"]
Tagged = list[tuple[str, str]]  # tokens, and what each stands in


def pick(words: list[str], random: Random) -> str:
    return words[int(random.random() * len(words))]


def quotation(random: Random, depth: int = 0) -> Tagged:
    """Ann says " he asks " yes " now ": the tag is how many quotations a token stands in, its own marks included."""
    tag = str(depth)
    found = [(pick(PEOPLE, random), tag), (pick(VERBS, random), tag), ('"', str(depth + 1))]
    for _ in range(1 + int(random.random() * 4)):
        found.append((pick(SAYINGS, random), str(depth + 1)))
    if depth < 2 and random.random() < 0.5:
        found += quotation(random, depth + 1)
    return [*found, ('"', str(depth + 1)), (pick(SAYINGS, random), tag)]


def block(random: Random, depth: int = 0) -> Tagged:
    """if a { x = y ; while b { ... } }: the tag is how many blocks a token stands in, its own braces included."""
    found = Tagged()
    for _ in range(1 + int(random.random() * 2)):
        if depth < 3 and random.random() < 0.5:
            head = [pick(["if", "while"], random), pick(NAMES, random)]
            inside = [("{", str(depth + 1)), *block(random, depth + 1), ("}", str(depth + 1))]
            found += [*((word, str(depth)) for word in head), *inside]
        else:
            found += [(word, str(depth)) for word in (pick(NAMES, random), "=", pick(NAMES, random), ";")]
    return found


def document(random: Random) -> Tagged:
    """Tags with names of two or three letters, letter by letter; tagged with how many tags are open, its own included."""
    seed, found, depth = str(random.random()), Tagged(), 0
    for tag in islice(xml.tags(seed, depth=3, longest=3), 40):
        closes = tag[1] == "/"
        depth += not closes
        found += [(letter, str(depth)) for letter in tag]
        depth -= closes
        if depth == 0 and len(found) > 12:
            break
    return found if depth == 0 else document(random)


def rows(seed: str, make: Callable[[Random], Tagged]) -> Iterator[Pair]:
    random = Random(seed)
    while True:
        words, tags = zip(*make(random), strict=True)
        yield Pair(" ".join(words), " ".join(tags), ())


def corpus(name: str, about: str, make: Callable[[Random], Tagged]) -> Corpus:
    return Corpus(
        name=name,
        about=f"{about}, each token tagged with how deep it stands",
        source_suffix="text",
        target_suffix="depth",
        sizes={"train": 3000, "valid": 200, "test": 200},
        draw=partial(rows, make=make),
        target_column="tags",
        joint=None,
    )


QUOTES = corpus("quotes", "Quotations in quotations", quotation)
CODE = corpus("code", "Blocks of code in blocks of code", block)
XML = corpus("xml", "Nested tags with random names, letter by letter (Jozefowicz et al. 2015)", document)
