"""GLEU against plain counting and by hand; what one sentence is worth, by every metric that training may follow."""

import itertools
import random

import pytest
import sacrebleu
from oracles import distance, needs_installed, unordered

from regard.evaluation.metrics import METRICS, Score, rewards, sentence_gleu

RougeScorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer  # no need of the package


def plain(hypothesis, reference):
    """min(precision, recall), written from the definition: every n-gram may be matched as often as the other side has it."""

    def grams(words):
        return [tuple(words[at : at + size]) for size in (1, 2, 3, 4) for at in range(len(words) - size + 1)]

    ours, rest, found = grams(hypothesis.split()), grams(reference.split()), 0
    theirs = len(rest)
    for gram in ours:
        if gram in rest:
            rest.remove(gram)
            found += 1
    return min(found / len(ours), found / theirs)


def test_gleu_is_the_smaller_of_precision_and_recall_of_all_n_grams():
    chance = random.Random(1)
    for _ in range(200):
        lines = [" ".join(chance.choices("abc", k=chance.randint(1, 9))) for _ in range(2)]
        assert sentence_gleu(*lines) == pytest.approx(plain(*lines))


@pytest.mark.parametrize(
    ("hypothesis", "reference", "found", "of"),
    [
        ("the cat sat on the mat", "the cat sat on the mat", 18, 18),
        ("the the the", "the cat", 1, 6),  # "the" matches once; 3 + 2 + 1 n-grams against 2 + 1
        ("the cat", "the cat sat on the mat", 3, 18),  # all right, but most is missing
        ("a b c d x f", "a b c d e f", 5 + 3 + 2 + 1, 18),
        ("yes.", "yes .", 3, 3),  # the full stop is a word of its own, as in BLEU
        ("", "yes", 0, 1),
        ("", "", 1, 1),
    ],
)
def test_gleu_by_hand(hypothesis, reference, found, of):
    assert sentence_gleu(hypothesis, reference) == pytest.approx(found / of)
    assert sentence_gleu(reference, hypothesis) == pytest.approx(found / of)  # symmetric


def test_the_score_of_a_corpus_is_the_mean_of_its_sentences():
    score = METRICS["gleu"](["a b c d x f", "the the the"], ["a b c d e f", "the cat"])
    assert score == Score("GLEU", pytest.approx(100 * (11 / 18 + 1 / 6) / 2), "GLEU|mean:sentences|n:4|case:mixed|tok:13a")


LINES = ["The cat sat on the mat, quietly.", "the cat sat on a mat", "quietly, cat", "dog"]


def bleu_by(tokenize):
    return lambda ours, theirs: sacrebleu.sentence_bleu(ours, [theirs], tokenize=tokenize).score / 100


def rouge_by(name):
    kind, _, stem = name.partition("_")
    scorer = RougeScorer([kind], use_stemmer=bool(stem))
    return lambda ours, theirs: scorer.score(theirs, ours)[kind].fmeasure


def rest(errors, length):
    return max(0.0, 1 - errors / length)


ORACLES = {
    "bleu_zh": bleu_by("zh"),
    "bleu_ja": bleu_by("ja-mecab"),
    "bleu_char": bleu_by("char"),
    "ter": lambda ours, theirs: rest(sacrebleu.sentence_ter(ours, [theirs]).score, 100),
    "wer": lambda ours, theirs: rest(distance(tuple(ours.split()), tuple(theirs.split())), len(theirs.split())),
    "cer": lambda ours, theirs: rest(distance(ours, theirs), len(theirs)),
    "per": lambda ours, theirs: rest(unordered(ours.split(), theirs.split()), len(theirs.split())),
    "gleu": lambda ours, theirs: plain(*(line.replace(",", " ,").replace(".", " .") for line in (ours, theirs))),
    "bleu": lambda ours, theirs: sacrebleu.sentence_bleu(ours, [theirs]).score / 100,
    "chrf": lambda ours, theirs: sacrebleu.sentence_chrf(ours, [theirs]).score / 100,
    "exact": lambda ours, theirs: 1.0 if ours == theirs else 0.0,
    **{name: rouge_by(name) for name in rewards() if name.startswith("rouge")},
}


@pytest.mark.parametrize("name", [name for name in rewards() if name != "execution"])  # of programs: test_corpora.py
def test_a_reward_is_a_share_and_what_others_compute(name):
    needs_installed(name)
    for ours, theirs in itertools.product(LINES, LINES):
        assert rewards()[name](ours, theirs) == pytest.approx(ORACLES[name](ours, theirs))
        assert 0 <= rewards()[name](ours, theirs) <= 1 + 1e-9
        pairs_of_words = name.startswith("rouge2") and " " not in ours  # one word has none
        assert (rewards()[name](ours, theirs) > 1 - 1e-9) == (ours == theirs and not pairs_of_words)
