"""Error rates against the recursion that defines them, and by hand."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import distance, unordered

from regard.evaluation.edits import edits
from regard.evaluation.metrics import METRICS

TOKENS = st.text("abc", max_size=9)


@given(TOKENS, TOKENS)
@settings(max_examples=300, deadline=None)
def test_edits_are_what_the_recursion_says(ours, theirs):
    assert edits(ours, theirs) == distance(ours, theirs)
    assert edits(ours.split(), theirs.split()) == distance(tuple(ours.split()), tuple(theirs.split()))


def table(ours, theirs):
    """The whole table of distances, for texts that the recursion is too slow for."""
    row = list(range(len(theirs) + 1))
    for at, one in enumerate(ours, start=1):
        above, row = row, [at]
        for place, other in enumerate(theirs):
            row.append(min(above[place + 1] + 1, row[-1] + 1, above[place] + (one != other)))
    return row[-1]


def test_texts_longer_than_a_machine_word():
    chance = random.Random(1)
    for longest in (63, 64, 65, 130, 300):
        ours, theirs = ("".join(chance.choices("ab", k=size)) for size in (longest + chance.randint(-9, 9), longest))
        assert edits(ours, theirs) == table(ours, theirs)


OUTPUTS = ["the cat sat", "on a b", "", "same", "b a"]
REFERENCES = ["the cat sat down", "on b", "one two", "same", "a b"]


@pytest.mark.parametrize(
    ("name", "errors", "length"),
    [
        ("wer", 1 + 1 + 2 + 0 + 2, 4 + 2 + 2 + 1 + 2),
        ("per", 1 + 1 + 2 + 0 + 0, 4 + 2 + 2 + 1 + 2),
        ("cer", 5 + 2 + 7 + 0 + 2, 16 + 4 + 7 + 4 + 3),
    ],
)
def test_rates_by_hand(name, errors, length):
    score = METRICS[name](OUTPUTS, REFERENCES)
    assert score.value == pytest.approx(100 * errors / length)
    assert score.name == name.upper()
    assert score.signature.startswith(f"{score.name}|nrefs:1|case:mixed|unit:")


@given(st.lists(st.tuples(st.text("ab ", max_size=8), st.text("ab ", max_size=8)), min_size=1, max_size=5))
@settings(deadline=None)
def test_rates_are_those_of_the_definitions(pairs):
    outputs, references = zip(*pairs, strict=True)
    words = [(tuple(ours.split()), tuple(theirs.split())) for ours, theirs in pairs]
    signs = [(ours.strip(), theirs.strip()) for ours, theirs in pairs]
    for name, compare, cut in (("wer", distance, words), ("per", unordered, words), ("cer", distance, signs)):
        errors, length = sum(compare(*pair) for pair in cut), sum(len(theirs) for _, theirs in cut)
        expected = 100 * errors / length if length else 100.0 * (errors > 0)
        assert METRICS[name](outputs, references).value == pytest.approx(expected)


def test_the_phoneme_error_rate_is_wer_over_phonemes():
    assert METRICS["wer"](["b i k tʃ ɛ r e"], ["b i kː j ɛ r e"]).value == pytest.approx(100 * 2 / 7)


def test_of_several_references_that_with_the_lowest_rate_counts():
    output, near, far = "a b c", "a b c d", "a x"
    for references in ([[near, far]], [[far, near]]):
        assert METRICS["wer"]([output], references).value == pytest.approx(100 * 1 / 4)
    # 2 errors of 4 words is a lower rate than 1 of 1
    assert METRICS["wer"](["a b"], [["a", "a b c d"]]).value == pytest.approx(100 * 2 / 4)


@pytest.mark.parametrize(("output", "worth"), [("a b", 1.0), ("a x", 0.5), ("x", 0.0), ("x y z w v", 0.0), ("", 0.0)])
def test_what_an_output_is_worth_is_never_below_0(output, worth):
    assert METRICS["wer"].sentence(output, "a b") == worth
    assert METRICS["wer"].sentence(output, "") == float(output == "")
