"""Copy, reverse and sort sequences of letters: the smallest tasks whose alignment is known."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from string import ascii_lowercase

from regard.corpora.corpus import Corpus, Pair

LONGEST_TRAINED, LONGEST = 12, 20  # letters
Order = Callable[[Sequence[str]], list[int]]  # the places of the source in the order of the target


def letters(seed: str, order: Order, shortest: int, longest: int) -> Iterator[Pair]:
    random = Random(seed).random
    while True:
        length = shortest + int(random() * (longest - shortest + 1))
        source = [ascii_lowercase[int(random() * 26)] for _ in range(length)]
        places = order(source)
        links = tuple(sorted((place, at) for at, place in enumerate(places)))
        yield Pair(" ".join(source), " ".join(source[place] for place in places), links)


def corpus(name: str, about: str, order: Order) -> Corpus:
    return Corpus(
        name=name,
        about=f"{about}; a test of longer ones; exact alignments",
        source_suffix="letters",
        target_suffix=name,
        sizes={"train": 10000, "valid": 300, "test": 300, "test-long": 300},
        draw=partial(letters, order=order, shortest=3, longest=LONGEST_TRAINED),
        own={"test-long": partial(letters, order=order, shortest=LONGEST_TRAINED + 1, longest=LONGEST)},
    )


COPY = corpus("copy", "Letters as they are", lambda source: list(range(len(source))))
REVERSE = corpus("reverse", "Letters from the last to the first", lambda source: list(range(len(source)))[::-1])
SORT = corpus("sort", "Letters in the order of the alphabet", lambda source: sorted(range(len(source)), key=source.__getitem__))
