"""ROUGE against Google's rouge_score, and the stemmer against NLTK's, which rouge_score calls."""

import random

import pytest

from regard.evaluation.intervals import with_interval
from regard.evaluation.metrics import METRICS
from regard.evaluation.porter import ENDINGS, IRREGULAR, ONCE, TWICE, stemmed
from regard.evaluation.rouge import KINDS

RougeScorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer  # no need of the package
PorterStemmer = pytest.importorskip("nltk.stem.porter").PorterStemmer

WORDS = ["The", "cat", "cats", "running", "run", "Meeting,", "meetings!", "schedule's", "of", "12", "élan", "...", "文", "x"]
OURS = [name for name in METRICS if name.startswith("rouge")]
PARTS = {"": "fmeasure", "precision": "precision", "recall": "recall"}


def text(chance):
    """Words in lines, some of which are empty; sometimes nothing."""
    words = chance.choices(WORDS, k=chance.randint(0, 14))
    return "".join(word + chance.choice([" ", " ", " ", "\n", " \n\n"]) for word in words)


@pytest.fixture(scope="module")
def rows():
    chance = random.Random(1)
    return [(text(chance), [text(chance) for _ in range(chance.randint(1, 3))]) for _ in range(400)]


def parts(name):
    """rougeL_recall_stemmed -> rougeL, recall, True"""
    kind, *rest = name.split("_")
    return kind, PARTS["".join(part for part in rest if part != "stemmed")], "stemmed" in rest


@pytest.mark.parametrize("name", OURS)
def test_rouge_score_says_the_same_of_every_row(name, rows):
    kind, part, stem = parts(name)
    scorer = RougeScorer([kind], use_stemmer=stem)
    counts = METRICS[name].function.rows([output for output, _ in rows], [right for _, right in rows])
    for (output, right), (value, one) in zip(rows, counts, strict=True):
        assert (value, one) == (pytest.approx(getattr(scorer.score_multi(right, output)[kind], part)), 1)
    assert 0 < sum(value for value, _ in counts) < len(rows)


def test_all_kinds_have_all_parts():
    assert {parts(name) for name in OURS} == {
        (f"rouge{kind}", part, stem) for kind in KINDS for part in PARTS.values() for stem in (False, True)
    }


def test_the_score_of_a_corpus_is_the_mean_of_its_rows():
    score = with_interval(METRICS["rougeL"], ["a b c d", "x"], ["a c d e f", "y"])
    assert score.value == pytest.approx(100 * (2 * (3 / 4) * (3 / 5) / (3 / 4 + 3 / 5) + 0) / 2)
    assert score.interval is not None
    assert score.interval[0] < score.value < score.interval[1]
    assert score.signature == "ROUGE-L|nrefs:1|f|level:sentence|stem:no|mean:rows"


def made_up(chance, endings):
    stem = "".join(chance.choices("aeioustylngbdrwx", k=chance.randint(0, 6)))
    return stem + chance.choice(endings) + chance.choice(["", "", "s", "ed", "ing", "ly", "ies", "y", "e"])


def test_words_lose_their_endings_as_nltk_takes_them_off():
    chance, oracle = random.Random(1), PorterStemmer()
    endings = ["", "eed", "ied", "ll", "logi", "sses", "ss", *TWICE, *ONCE, *ENDINGS]
    words = [*IRREGULAR, *(made_up(chance, endings) for _ in range(20_000))]
    assert {word: stemmed(word) for word in words} == {word: oracle.stem(word) for word in words}
