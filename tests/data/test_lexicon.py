"""IBM's Model 1 against sums over dense tables, and against NLTK."""

import numpy as np
import pytest

from regard.data.lexicon import learn, likeliest

ROWS = [([1, 2], [5, 6]), ([1, 3], [5, 7]), ([2], [6]), ([1, 1, 4], [8, 5, 5]), ([], [5]), ([3], [])]


def dense(rows, rounds):
    """Expectation and maximisation as the paper has them, word by word."""
    table = {(e, f): 1.0 for source, target in rows for e in source for f in target}
    for _ in range(rounds):
        counts = dict.fromkeys(table, 0.0)
        for source, target in rows:
            for f in target:
                total = sum(table[e, f] for e in source)
                for e in source:
                    counts[e, f] += table[e, f] / total
        totals = {}
        for (e, _), count in counts.items():
            totals[e] = totals.get(e, 0.0) + count
        table = {(e, f): count / totals[e] for (e, f), count in counts.items()}
    return table


def learnt(rows, rounds):
    found = learn([(np.array(source, int), np.array(target, int)) for source, target in rows], rounds)
    return dict(zip(zip(found.source.tolist(), found.target.tolist(), strict=True), found.probability.tolist(), strict=True))


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_it_is_the_papers(rounds):
    assert learnt(ROWS, rounds) == pytest.approx(dense(ROWS, rounds))


def test_nltk_finds_the_same():
    translate = pytest.importorskip("nltk.translate")
    # 9: its word for nothing, which stands in each source. It divides a word that comes twice in a target by both its totals
    rows = [([1, 2, 9], [5, 6]), ([1, 3, 9], [5, 7, 8]), ([2, 9], [6]), ([3, 4, 9], [8])]
    corpus = [translate.AlignedSent([str(f) for f in target], [str(e) for e in source if e != 9]) for source, target in rows]
    theirs = translate.IBMModel1(corpus, 6).translation_table
    for (e, f), probability in learnt(rows, 6).items():
        assert probability == pytest.approx(theirs[str(f)][None if e == 9 else str(e)], rel=1e-6)


def test_the_likeliest_of_each_word_come_first_and_nothing_is_made_up():
    found = likeliest(learn([(np.array(source, int), np.array(target, int)) for source, target in ROWS]), 6, 2, nothing=0)
    table = dense(ROWS, 5)
    for word in range(6):
        ranked = sorted((f for e, f in table if e == word), key=lambda f: -table[word, f])[:2]
        assert found[word].tolist() == ranked + [0] * (2 - len(ranked))
