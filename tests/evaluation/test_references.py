"""Several references a row: sacreBLEU's own for its metrics, any of them for others; a row may have fewer."""

import pytest
import sacrebleu
from oracles import needs_installed

from regard.errors import UserError
from regard.evaluation.evaluate import inputs_of
from regard.evaluation.metrics import METRICS
from regard.evaluation.translation import sentence_gleu

OUTPUTS = ["the cat sat on a mat quietly.", "it rains heavily today.", "这是一个测试。", "one, two, three, four"]
FIRST = ["The cat sat on the mat, quietly.", "it pours today.", "这是一次测试。", "one two three four"]
SECOND = ["a cat sat on a mat quietly.", None, "这是个测试。", "one, two, three and four"]
SEVERAL = [[one for one in row if one is not None] for row in zip(FIRST, SECOND, strict=True)]
BY_SACREBLEU = {
    "bleu": sacrebleu.BLEU,
    "bleu_as_cut": lambda: sacrebleu.BLEU(tokenize="none", force=True),
    "bleu_zh": lambda: sacrebleu.BLEU(tokenize="zh"),
    "bleu_ja": lambda: sacrebleu.BLEU(tokenize="ja-mecab"),
    "bleu_char": lambda: sacrebleu.BLEU(tokenize="char"),
    "chrf": sacrebleu.CHRF,
    "ter": sacrebleu.TER,
}
OF_TEXT = [name for name, metric in METRICS.items() if metric.needs == "outputs"]


@pytest.mark.parametrize("name", BY_SACREBLEU)
@pytest.mark.parametrize("streams", [[FIRST], [FIRST, SECOND], [FIRST, FIRST[::-1]]])
def test_sacrebleu_says_the_same(name, streams):
    needs_installed(name)
    oracle = BY_SACREBLEU[name]()
    references = [[one for one in row if one is not None] for row in zip(*streams, strict=True)]
    score = METRICS[name](OUTPUTS, references)
    expected = oracle.corpus_score(OUTPUTS, streams)
    assert score.value == pytest.approx(expected.score)
    assert score.signature == f"{expected.name}|{oracle.get_signature().format()}"


def test_chinese_is_cut_where_its_tokenisation_cuts():
    values = {name: METRICS[name](["这是一个测试。"], ["这是一次测试。"]).value for name in ("bleu", "bleu_zh", "bleu_char")}
    assert values["bleu"] == 0  # no blank: one word, and it is wrong
    assert values["bleu_zh"] == pytest.approx(values["bleu_char"])
    assert values["bleu_char"] > 30


@pytest.mark.parametrize("name", OF_TEXT)
def test_one_reference_in_a_list_is_one_reference(name):
    needs_installed(name)
    assert METRICS[name](OUTPUTS, [[one] for one in FIRST]) == METRICS[name](OUTPUTS, FIRST)


@pytest.mark.parametrize("name", OF_TEXT)
def test_a_further_reference_that_is_equal_makes_it_right(name):
    needs_installed(name)
    metric = METRICS[name]
    best = metric(OUTPUTS, OUTPUTS).value
    assert metric(OUTPUTS, [[one, output] for one, output in zip(FIRST, OUTPUTS, strict=True)]).value == pytest.approx(best)


@pytest.mark.parametrize("name", OF_TEXT)
def test_a_row_without_a_reference_is_refused(name):
    needs_installed(name)
    with pytest.raises(UserError, match="row 2 of 2 has no reference"):
        METRICS[name](["a", "b"], [["a"], []])


def test_exact_and_gleu_take_the_best_of_each_row():
    assert METRICS["exact"](["a", "b", "c"], [["x", "a "], ["b"], ["y", "z"]]).value == pytest.approx(200 / 3)
    best = [max(sentence_gleu(output, one) for one in right) for output, right in zip(OUTPUTS, SEVERAL, strict=True)]
    score = METRICS["gleu"](OUTPUTS, SEVERAL)
    assert score.value == pytest.approx(100 * sum(best) / len(best))
    assert "|nrefs:var|" in score.signature


def test_bleu_ja_says_what_to_install(monkeypatch):
    from sacrebleu.tokenizers import tokenizer_ja_mecab

    from regard.evaluation import translation

    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    translation.bleu.cache_clear()
    with pytest.raises(UserError, match=r"pip install 'sacrebleu\[ja\]'"):
        METRICS["bleu_ja"](["猫"], ["猫"])


def test_rows_of_the_same_source_become_one_input():
    pairs = [("a", "1"), ("b", "2"), ("a", "3"), ("a", "1")]
    assert inputs_of(pairs) == [("a", ["1"]), ("b", ["2"]), ("a", ["3"]), ("a", ["1"])]
    assert inputs_of(pairs, same_source=True) == [("a", ["1", "3"]), ("b", ["2"])]
    assert inputs_of(pairs, [["x"], [], [], ["y"]], same_source=True) == [("a", ["1", "x", "3", "y"]), ("b", ["2"])]
    with pytest.raises(UserError, match="further references of 1 rows, for 4 rows"):
        inputs_of(pairs, [["x"]])
