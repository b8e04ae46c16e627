"""F1 of labels and of spans by hand; spans as the script conlleval reads them."""

import random
import re
from itertools import groupby

import pytest

from regard.evaluation.intervals import with_interval
from regard.evaluation.labels import f1, spans
from regard.evaluation.metrics import METRICS


def of(*labels):
    return [row.split() for row in labels]


def test_macro_f1_by_hand():
    """N: 2 right, 3 found, 2 wanted, F1 = 4/5; V: 1, 1, 2, F1 = 2/3; D is only found, 0; X is nowhere and counts nothing."""
    found, truth = of("N N D", "V N"), of("N N V", "V")
    score = with_interval(METRICS["macro_f1"], found, truth)
    assert score.value == pytest.approx(100 * (4 / 5 + 2 / 3 + 0) / 3)
    assert [(part.name, part.value) for part in score.parts] == [
        ("N", pytest.approx(80)), ("V", pytest.approx(200 / 3)), ("D", 0.0),
    ]  # fmt: skip
    assert score.parts[0].signature == "precision 66.7, recall 100.0 of 2"
    assert score.parts[1].signature == "precision 100.0, recall 50.0 of 2"
    assert all(part.interval[0] <= part.value <= part.interval[1] for part in score.parts)
    assert METRICS["accuracy"](found, truth).value == pytest.approx(100 * 3 / 5)


def test_the_interval_of_a_label_is_that_of_resampled_rows():
    chance = random.Random(1)
    truth = [[chance.choice("NV")] for _ in range(30)]
    found = [one if chance.random() < 0.7 else ["N"] for one in truth]
    score = with_interval(METRICS["macro_f1"], found, truth, seed=3)
    part = next(one for one in score.parts if one.name == "N")
    import numpy as np

    generator, values = np.random.default_rng(3), []
    for _ in range(1000):
        drawn = generator.integers(30, size=30)
        given, wanted = [found[row] == ["N"] for row in drawn], [truth[row] == ["N"] for row in drawn]
        counts = (sum(a and b for a, b in zip(given, wanted, strict=True)), sum(given), sum(wanted))
        values.append(f1(*map(float, counts)))
    assert part.interval == pytest.approx(tuple(np.percentile(values, [2.5, 97.5])))


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        ("B-PER I-PER O B-LOC", [("PER", (0, 2)), ("LOC", (3, 4))]),
        ("B-PER B-PER", [("PER", (0, 1)), ("PER", (1, 2))]),
        ("I-PER I-PER O", [("PER", (0, 2))]),  # IOB1: begins without a B-
        ("O I-PER", [("PER", (1, 2))]),
        ("B-PER I-LOC", [("PER", (0, 1)), ("LOC", (1, 2))]),  # another kind begins another span
        ("B-PER I-PER I-LOC I-LOC", [("PER", (0, 2)), ("LOC", (2, 4))]),
        ("B-a-b I-a-b", [("a-b", (0, 2))]),
        ("S-PER B-LOC E-LOC I-LOC O", [("PER", (0, 1)), ("LOC", (1, 3)), ("LOC", (3, 4))]),
        ("N V O", []),
        ("", []),
    ],
)
def test_spans_are_those_of_conlleval(tags, found):
    assert spans(tags.split()) == found


def written_out(tags):
    """Runs of one kind, each cut by a regular expression."""
    found, at = [], 0
    for kind, run in groupby(tags, key=lambda tag: tag.partition("-")[2]):
        prefixes = "".join(tag[0] for tag in run)
        if kind:
            found += [(kind, (at + one.start(), at + one.end())) for one in re.finditer("[BI]I*E?|E|S", prefixes)]
        at += len(prefixes)
    return found


@pytest.mark.parametrize("prefixes", ["BI", "I", "BIE", "BIES", "ES"])
def test_spans_of_any_tags_are_those_of_an_expression(prefixes):
    chance, seen = random.Random(prefixes), 0
    for _ in range(3000):
        tags = chance.choices(["O", *(f"{one}-{kind}" for one in prefixes for kind in ("X", "Y"))], k=chance.randint(0, 7))
        assert spans(tags) == written_out(tags)
        seen += len(spans(tags))
    assert seen > 3000


def test_span_f1_by_hand():
    """Of four found three are right, of five wanted: P = 3/4, R = 3/5, F1 = 2/3. One tag wrong spoils its whole span."""
    truth = of("B-PER I-PER O B-LOC", "B-LOC O B-ORG I-ORG", "B-PER O")
    found = of("B-PER I-PER O B-LOC", "B-LOC O B-ORG O", "O O")
    score = with_interval(METRICS["span_f1"], found, truth)
    assert score.value == pytest.approx(100 * 2 / 3)
    assert {part.name: part.value for part in score.parts} == {
        "LOC": 100.0, "PER": pytest.approx(200 / 3), "ORG": 0.0,
    }  # fmt: skip
    assert METRICS["span_f1"](of("O"), of("O")).value == 0
    assert METRICS["span_f1"](truth, truth).value == 100
    assert METRICS["span_f1"]([[]], of("B-PER")).value == 0  # what could not be read counts
