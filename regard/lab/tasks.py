"""The three tasks: what is read, what is asked, which figure counts. TASKS names them."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from random import Random
from string import ascii_lowercase
from typing import NamedTuple

import numpy as np
from torch import Tensor

from regard.corpora import xml
from regard.corpora.arithmetic import Problem, problems
from regard.data.batching import Integers
from regard.lab.predictor import Outputs, Predictor, Targets
from regard.lab.settings import Setting
from regard.lab.texts import Texts
from regard.lab.windows import IGNORE, Rows, Stream, Windows

SYMBOLS = "0123456789+-=." + ascii_lowercase  # the letters distract


@dataclass(frozen=True)
class Loaded:
    vocabulary: int
    train: Windows
    valid: Windows
    test: Windows


class Figure(NamedTuple):
    name: str
    add: Callable[[Predictor, Outputs, Targets], Tensor]  # its sum over what is asked in a window


ACCURACY, NATS = Figure("accuracy", Predictor.hits), Figure("nats", Predictor.nats)


@dataclass(frozen=True)
class Task:
    about: str
    figure: Figure  # on the test
    load: Callable[[Setting, Texts | None], Loaded]


def arith(setting: Setting, texts: Texts | None) -> Loaded:
    """Nothing but the answer is asked for. No problem of validation or test is trained on."""
    drawn, random = problems("lab arith", setting.digits), Random("lab distractors").random
    aside = dict.fromkeys(islice(drawn, setting.problems // 10))  # distinct, so that validation and test are
    trained = islice((problem for problem in drawn if problem not in aside), setting.problems)
    splits = (trained, list(aside)[::2], list(aside)[1::2])
    return Loaded(len(SYMBOLS), *(rows(written(problem, setting.distractors, random) for problem in each) for each in splits))


def written(problem: Problem, distractors: int, random: Callable[[], float]) -> str:
    """`12-3456=-3444.`, with up to `distractors` letters before each character of the problem."""
    noise = (int(random() * (distractors + 1)) for _ in str(problem))
    parts = (xml.letters(count, random) + symbol for count, symbol in zip(noise, str(problem), strict=True))
    return "".join(parts) + f"={problem.answer}."


def rows(texts: Iterable[str]) -> Rows:
    """Each character is to be foretold from those before it, once `=` was read."""
    places = {symbol: token for token, symbol in enumerate(SYMBOLS)}
    encoded = [[places[symbol] for symbol in text] for text in texts]
    targets = [[IGNORE] * ids.index(places["="]) + ids[ids.index(places["="]) + 1 :] for ids in encoded]
    return Rows(padded([ids[:-1] for ids in encoded], 0), padded(targets, IGNORE))


def padded(rows: Sequence[list[int]], value: int) -> Integers:
    longest = max(map(len, rows))
    return np.array([row + [value] * (longest - len(row)) for row in rows])


def nested(setting: Setting, texts: Texts | None) -> Loaded:
    """Every character is asked for, though no name can be known before its tag closes."""
    lengths = {"train": setting.characters, "valid": setting.characters // 20, "test": setting.characters // 20}
    streams = [xml.text(f"lab xml {split}", length, setting.depth, setting.letters) for split, length in lengths.items()]
    return Loaded(len(xml.ALPHABET), *(stream(map(xml.ALPHABET.index, text)) for text in streams))


def stream(ids: Iterable[int]) -> Stream:
    return Stream(np.array(list(ids)))


UNKNOWN, END = "<unk>", "<eos>"


def words(setting: Setting, texts: Texts | None) -> Loaded:
    """The most frequent words of the training text; all others are one, and each line has an end."""
    assert texts is not None
    counts = Counter(word for line in texts.train for word in line.split() if word not in (UNKNOWN, END))
    ranking = sorted(counts, key=lambda word: (-counts[word], word))
    ids = {word: token for token, word in enumerate([UNKNOWN, END, *ranking[: setting.vocabulary - 2]])}
    return Loaded(len(ids), *(stream(tokens(lines, ids)) for lines in (texts.train, texts.valid, texts.test)))


def tokens(lines: Sequence[str], ids: dict[str, int]) -> Iterable[int]:
    return (ids.get(word, ids[UNKNOWN]) for line in lines for word in [*line.split(), END])


TASKS: dict[str, Task] = {
    "arith": Task("sums and differences, next-step accuracy of the answer's characters", ACCURACY, arith),
    "xml": Task("nested tags with random names, next-step accuracy of all characters", ACCURACY, nested),
    "words": Task("a language model of words, negative log-likelihood a word in nats", NATS, words),
}
