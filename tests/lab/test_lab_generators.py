"""The generated tasks: arithmetic by Python's own integers, XML by Python's own parser."""

import re
from collections import Counter
from itertools import islice
from xml.etree import ElementTree

import pytest

from regard.corpora import CORPORA, arithmetic, generate, xml
from regard.corpora.arithmetic import Problem, problems


def solved(problem, answer):
    """Whether a text like `12-3456` has this answer."""
    left, sign, right = re.fullmatch(r"(\d+)([+-])(\d+)", problem).groups()
    assert all(text == str(int(text)) for text in (left, right, answer))  # no zeros before, no +
    return int(left) + int(f"{sign}{right}") == int(answer)


def test_answers_are_right():
    for problem in islice(problems("answers", 6), 5000):
        assert solved(str(problem), problem.answer), problem


def test_both_signs_and_all_lengths_occur_alike():
    drawn = list(islice(problems("lengths", 5), 5000))
    assert 0.45 < sum(problem.sign == "+" for problem in drawn) / len(drawn) < 0.55
    lengths = Counter(len(str(number)) for problem in drawn for number in (problem.left, problem.right))
    assert set(lengths) == {1, 2, 3, 4, 5}
    assert all(0.18 < count / (2 * len(drawn)) < 0.22 for count in lengths.values())
    assert {problem.left for problem in drawn if problem.left < 10} == set(range(10))
    assert any(problem.answer.startswith("-") for problem in drawn)


def test_the_arithmetic_corpus_is_arithmetic():
    for split, pairs in generate(CORPORA["arithmetic"], seed=3, size=500).items():
        for pair in pairs:
            problem, answer = pair.source.replace(" ", ""), pair.target.replace(" ", "")
            assert (pair.source, pair.target) == (" ".join(problem), " ".join(answer))
            assert solved(problem, answer)
            longest = max(map(len, re.split(r"[+-]", problem)))
            assert (longest > arithmetic.LONGEST_TRAINED) == (split == "test-long")


def test_golden_problems():
    """A seed must mean the same for ever: made by `list(islice(problems("golden", 4), 2))`, `xml.text("golden", 30, 3)`."""
    assert list(islice(problems("golden", 4), 2)) == GOLDEN_PROBLEMS
    assert xml.text("golden", 30, 3) == GOLDEN_TEXT


def depth_of(element):
    return 1 + max((depth_of(child) for child in element), default=0)


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_tags_are_nested_as_deep_as_they_may(depth):
    text = xml.text("nested", 20_000, depth)
    assert 20_000 <= len(text) < 30_000
    assert set(text) == set(xml.ALPHABET)
    assert depth_of(ElementTree.fromstring(f"<r>{text}</r>")) - 1 == depth


def test_names_are_short_and_long():
    root = ElementTree.fromstring(f"<r>{xml.text('names', 30_000, 3)}</r>")
    lengths = Counter(len(element.tag) for element in root.iter() if element is not root)
    assert sorted(lengths) == list(range(2, 11))
    assert min(lengths.values()) > 0.7 * max(lengths.values())
    short = ElementTree.fromstring(f"<r>{xml.text('names', 5_000, 3, 4)}</r>")
    assert {len(element.tag) for element in short.iter() if element is not short} == {2, 3, 4}


def test_opening_and_closing_come_alike():
    """At a depth that leaves both open, half of the tags that follow close."""
    open_tags, closing, asked = 0, 0, 0
    for tag in islice(xml.tags("chance", 5), 20_000):
        if 0 < open_tags < 5:
            asked += 1
            closing += tag[1] == "/"
        open_tags += -1 if tag[1] == "/" else 1
    assert 0.48 < closing / asked < 0.52


GOLDEN_PROBLEMS = [Problem(5374, "+", 17), Problem(2594, "+", 8)]
GOLDEN_TEXT = "<mgcjzedvd><vscvt><nvycctg></nvycctg><lewuii></lewuii></vscvt></mgcjzedvd>"
