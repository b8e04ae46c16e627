"""What the small corpora say of themselves, checked by something else: enumeration, Python itself, a calendar, a stack."""

import ast
import datetime
import itertools

import numpy as np
import pytest

from regard.corpora import CORPORA, generate, write
from regard.corpora.markov import CHAIN, Chain
from regard.corpora.programs import INPUTS, Refused, executes_as, run, tried
from regard.evaluation.metrics import METRICS


def pairs_of(name, size=400):
    return [pair for pairs in generate(CORPORA[name], seed=5, size=size).values() for pair in pairs]


@pytest.mark.parametrize(("name", "ordered"), [("copy", list), ("reverse", lambda x: x[::-1]), ("sort", sorted)])
def test_letters_are_ordered_and_each_link_joins_the_same_letter(name, ordered):
    for pair in pairs_of(name):
        source, target = pair.source.split(), pair.target.split()
        assert target == ordered(source)
        assert sorted(place for place, _ in pair.alignment) == sorted(place for _, place in pair.alignment)
        assert len(pair.alignment) == len(source)
        assert all(source[one] == target[other] for one, other in pair.alignment)


def test_dates_are_those_of_the_calendar():
    forms = ["%d %B %Y", "%B %d , %Y", "the %dth of %B %Y", "%b %d , %Y", "%d %b %Y", "%d . %m . %Y", "%Y / %m / %d",
             "%B the %dth , %Y", "on %d %B in the year %Y"]  # fmt: skip
    seen = set()
    for pair in pairs_of("dates"):
        target = datetime.date.fromisoformat(pair.target.replace(" ", ""))
        text = pair.source
        for _ in range(4):  # digits together again
            text = " ".join(text.split())
            text = "".join(
                letter for at, letter in enumerate(text)
                if not (letter == " " and text[at - 1].isdigit() and text[at + 1 : at + 2].isdigit())
            )  # fmt: skip
        for ending in ("st", "nd", "rd"):
            text = text.replace(f"{target.day}{ending} ", f"{target.day}th ")
        read = {}
        for form in forms:
            try:
                read[form] = datetime.datetime.strptime(text, form).date()
            except ValueError:
                continue
        assert target in read.values(), (pair, text)
        seen |= read.keys()
    assert seen == set(forms)


ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen"""
TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
WORDS = {word: number for number, word in enumerate(ONES.split())}
WORDS |= {word: 20 + 10 * number for number, word in enumerate(TENS.split())}


def value_of(words):
    return (-1 if words[0] == "minus" else 1) * sum(WORDS[word] for word in words if word != "minus")


def test_equations_are_what_python_makes_of_them():
    signs = {"plus": "+", "minus": "-", "times": "*"}
    for pair in pairs_of("equations"):
        words = pair.source.removesuffix(" equals").split()
        groups = [list(group) for _, group in itertools.groupby(words, signs.__contains__)]
        text = "".join(signs[group[0]] if group[0] in signs else str(sum(WORDS[word] for word in group)) for group in groups)
        assert eval(text) == value_of(pair.target.split())  # noqa: S307 - of numbers and signs


def brute_force(chain, observations):
    """p(q_1 .. q_T, o_1 .. o_T) of every path."""
    numbers = chain.numbers(observations)
    for path in itertools.product(range(len(chain.states)), repeat=len(numbers)):
        chance = chain.first[path[0]]
        for at, (state, symbol) in enumerate(zip(path, numbers, strict=True)):
            chance *= chain.emission[state, symbol] * (chain.transition[path[at - 1], state] if at else 1.0)
        yield path, chance


@pytest.mark.parametrize("length", [1, 2, 5])
def test_posteriors_are_those_of_all_paths(length):
    random = np.random.default_rng(length)
    matrices = [random.dirichlet(np.ones(size), count) for size, count in ((3, 1), (3, 3), (4, 3))]
    for chain in (CHAIN, Chain(matrices[0][0], *matrices[1:], CHAIN.states, CHAIN.symbols)):
        observations = [CHAIN.symbols[number] for number in random.integers(4, size=length)]
        both, ahead = chain.forward_backward(observations), chain.forward(observations)
        for time in range(length):
            for known, found in ((length, both), (time + 1, ahead)):
                shares = np.zeros(3)
                for path, chance in brute_force(chain, observations[:known]):
                    shares[path[time]] += chance
                np.testing.assert_allclose(found[time], shares / shares.sum(), atol=1e-12)


def test_the_chain_is_drawn_as_it_says():
    pairs = pairs_of("markov", 4000)
    states = [pair.target.split() for pair in pairs]
    moves = np.zeros((3, 3))
    for row in states:
        for one, other in itertools.pairwise(row):
            moves[CHAIN.states.index(one), CHAIN.states.index(other)] += 1
    np.testing.assert_allclose(moves / moves.sum(1, keepdims=True), CHAIN.transition, atol=0.02)
    shown = np.zeros((3, 4))
    for pair in pairs:
        for symbol, state in zip(pair.source.split(), pair.target.split(), strict=True):
            shown[CHAIN.states.index(state), CHAIN.symbols.index(symbol)] += 1
    np.testing.assert_allclose(shown / shown.sum(1, keepdims=True), CHAIN.emission, atol=0.02)
    np.testing.assert_allclose(CHAIN.transition.sum(1), 1)
    np.testing.assert_allclose(CHAIN.emission.sum(1), 1)


@pytest.mark.parametrize(("name", "opens", "closes"), [("code", "{", "}"), ("xml", None, None), ("quotes", None, None)])
def test_depths_are_those_of_a_stack(name, opens, closes):
    for pair in pairs_of(name):
        words, tags = pair.source.split(), [int(tag) for tag in pair.target.split()]
        assert len(words) == len(tags)
        if name == "code":
            depth = 0
            for word, tag in zip(words, tags, strict=True):
                depth += word == opens
                assert tag == depth
                depth -= word == closes
            assert depth == 0
        elif name == "xml":
            stack = []
            for part in pair.source.replace(" ", "").replace(">", "> ").split():
                if part[1] == "/":
                    assert stack.pop() == part[2:-1]
                else:
                    stack.append(part[1:-1])
            assert not stack
        else:  # a mark after a verb opens, any other closes
            depth = 0
            for before, word, tag in zip(["", *words], words, tags, strict=False):
                opening = word == '"' and before in ("says", "asks", "shouts", "whispers", "writes")
                depth += opening
                assert tag == depth
                depth -= word == '"' and not opening
            assert depth == 0
    assert len({tag for pair in pairs_of(name) for tag in pair.target.split()}) >= 3


def test_our_interpreter_gives_what_python_gives():
    for pair in pairs_of("programs"):
        names = {}
        exec(pair.target, names)
        assert tried(pair.target) == [names["f"](list(given)) for given in INPUTS]


@pytest.mark.parametrize(
    "program",
    [
        "", "def f ( x ) :", "import os", "def f ( x ) : return __import__ ( 'os' )", "def f ( x ) : return x . __class__",
        "def f ( x ) : return open ( x )", "def f ( x ) : return 2 ** 99999999", "def f ( x ) : return y",
        "def f ( ) : return 1", "def f ( x ) : return x [ 100 ]",
        "def f ( x ) : return lambda : 1", "def f ( x ) : return 'a' * 5", "def f ( x ) : return [ 1 ] * 999999999",
        "def f ( x ) : return x [ 100 ]" + " " * 3000, "def f ( x ) : return " + "- " * 500 + "1", "(" * 1500, "1 +", "\0",
        "def f ( x ) : return " + "[ " * 30 + "y" + " for y in x ]" * 30, "def f ( x ) : return 1 % 0",
        "def f ( x ) : return sum ( x , x )", "def f ( x ) : return sorted ( 3 )", "def f ( x ) : return max ( x )",
    ],
)  # fmt: skip
def test_what_is_none_of_our_programs_is_refused_in_time(program):
    with pytest.raises(Refused):
        [run(program, given) for given in INPUTS]
    assert executes_as(program, "def f ( x ) : return x") == 0


def test_execution_counts_what_programs_do():
    right = "def f ( x ) : return sum ( [ 2 * y for y in x ] )"
    other = "def f ( z ) : return sum ( [ y + y for y in z ] )"
    assert executes_as(other, right) == executes_as(right, right) == 1
    assert executes_as("def f ( x ) : return sum ( x )", right) == 0
    score = METRICS["execution"]([other, "def f ( x ) : return"], [right, right])
    assert score.value == 50
    assert all(isinstance(ast.parse(pair.target).body[0], ast.FunctionDef) for pair in pairs_of("programs"))


def test_a_language_model_gets_both_sides_as_one_text(tmp_path):
    for name, line in {
        "equations": "{0.source} {0.target}",
        "latin": "{0.source} [SEP] {0.target}",
        "xml": "{0.source}",
    }.items():
        paths = write(CORPORA[name], tmp_path / name, size=20, joint=True)
        pairs = generate(CORPORA[name], size=20)
        assert paths["train"].keys() == {"target"}
        assert paths["train"]["target"].read_text().splitlines() == [line.format(pair) for pair in pairs["train"]]
