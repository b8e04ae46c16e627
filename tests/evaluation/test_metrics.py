import gc
import json
import math
import subprocess
import sys
from collections import Counter

import pytest
from oracles import needs_installed

from regard.data.boxes import Box
from regard.data.links import Links
from regard.decoding.forcing import Likelihood
from regard.errors import UserError
from regard.evaluation.metrics import METRICS, Score

REFERENCES = [
    "The cat sat on the mat, quietly.",
    "Il pleut à verse aujourd'hui.",
    "“Yes”, she said - twice!",
    "短い 文",
]
HYPOTHESES = ["the cat sat on a mat quietly.", "Il pleut à verse ce matin.", "“Yes”, she said - twice!", "長い 文"]
OF_TEXT = [name for name, metric in METRICS.items() if metric.needs == "outputs" and name != "execution"]  # of programs
COMMAND_LINE = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}


@pytest.mark.parametrize("name", COMMAND_LINE)
def test_metric_matches_the_command_line_of_sacrebleu(name, tmp_path):
    (tmp_path / "references").write_text("\n".join(REFERENCES) + "\n", encoding="utf-8")
    (tmp_path / "hypotheses").write_text("\n".join(HYPOTHESES) + "\n", encoding="utf-8")
    files = [str(tmp_path / "references"), "-i", str(tmp_path / "hypotheses")]
    command = [sys.executable, "-m", "sacrebleu", *files, "-m", name, "--width", "6", "--format", "json"]
    told = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    score = METRICS[name](HYPOTHESES, REFERENCES)
    assert score.name == told["name"] == COMMAND_LINE[name]
    assert score.value == pytest.approx(told["score"], abs=1e-6)
    assert score.signature == f"{told['name']}|{told['signature']}"


def test_bleu_by_hand():
    # 1- to 4-grams found: 5/6, 3/5, 2/4, 1/3; equal lengths, so no brevity penalty
    score = METRICS["bleu"](["a b c d x f"], ["a b c d e f"])
    assert score.value == pytest.approx(100 * math.exp(sum(map(math.log, [5 / 6, 3 / 5, 2 / 4, 1 / 3])) / 4))
    assert score.signature.startswith("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_chrf_by_hand():
    # orders above 2 do not occur; F2 = 5PR / (4P + R): 1-grams P = 1, R = 2/3; 2-grams P = 1, R = 1/2; averaged first
    precision, recall = 1.0, (2 / 3 + 1 / 2) / 2
    expected = 100 * 5 * precision * recall / (4 * precision + recall)
    assert METRICS["chrf"](["ab"], ["abc"]).value == pytest.approx(expected)


def test_case_counts_in_bleu():
    assert METRICS["bleu"](["A B C D E"], ["a b c d e"]).value < METRICS["bleu"](["a b c d e"], ["a b c d e"]).value


def test_exact_strips_the_ends_only():
    assert METRICS["exact"]([" a b\n", "a  b", "A b", "c"], ["a b", "a b", "a b", "c"]) == Score("exact", 50.0, "")


@pytest.mark.parametrize("name", OF_TEXT)
def test_equal_text_is_the_best_and_other_text_worse(name):
    needs_installed(name)
    best, known = 100 if METRICS[name].higher_is_better else 0, REFERENCES[:3] if name.startswith("rouge") else REFERENCES
    assert METRICS[name](known, known).value == pytest.approx(best)  # ROUGE has words of a-z and 0-9 only
    assert 0 < METRICS[name](HYPOTHESES, REFERENCES).value < 100


LINKS = [frozenset({(0, 0), (1, 1)}), frozenset({(0, 1)})]
# for each need: what a good model gives, what a worse one gives, and the truth
ANSWERS = {
    "outputs": (REFERENCES, HYPOTHESES, REFERENCES),
    "likelihood": ([Likelihood(-1.0, 2), Likelihood(-2.0, 4)], [Likelihood(-9.0, 2), Likelihood(-3.0, 4)], ["a", "b"]),
    "text likelihood": ([Likelihood(-1.0, 2), Likelihood(-2.0, 4)], [Likelihood(-9.0, 2), Likelihood(-3.0, 4)], ["a", "b"]),
    "labels": ([["B-N", "O"], ["B-D"]], [["B-N", "I-N"], ["B-D"]], [["B-N", "O"], ["B-D"]]),
    "boxes": ([[(1.0, 1.0)], [(2.0, 2.0)]], [[(1.0, 1.0)], [(9.0, 2.0)]], [{0: Box(0, 0, 4, 4)}] * 2),
    "links": (LINKS, [frozenset({(0, 0), (1, 0)}), frozenset()], [Links(links, links) for links in LINKS]),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_better_model_ranks_higher(name):
    needs_installed(name)
    metric = METRICS[name]
    good, bad, truth = ANSWERS[metric.needs]
    assert metric.rank(metric(good, truth).value) > metric.rank(metric(bad, truth).value)


def test_loss_and_perplexity_by_hand():
    likelihoods = ANSWERS["likelihood"][0]
    assert METRICS["loss"](likelihoods, None).value == pytest.approx((1.0 + 2.0) / (2 + 4))
    assert METRICS["perplexity"](likelihoods, None).value == pytest.approx(math.exp(0.5))
    assert METRICS["loss"]([], []).value == METRICS["perplexity"]([], []).value == math.inf  # nothing could be read


def test_words_and_characters_of_a_text_are_counted_with_the_end_of_each_row():
    likelihoods, texts = ANSWERS["likelihood"][0], ["two words", ""]
    assert METRICS["word_perplexity"](likelihoods, texts).value == pytest.approx(math.exp(3.0 / (2 + 1 + 0 + 1)))
    assert METRICS["bits_per_character"](likelihoods, texts).value == pytest.approx(3.0 / math.log(2) / (9 + 1 + 0 + 1))
    assert METRICS["bits_per_character"](likelihoods, texts).signature == "code points|row end:1"


@pytest.mark.parametrize("name", OF_TEXT)
def test_what_cannot_be_paired_is_refused(name):
    with pytest.raises(UserError, match="2 hypotheses but 1 references"):
        METRICS[name](["a", "b"], ["a"])
    with pytest.raises(UserError, match="nothing to score"):
        METRICS[name]([], [])


def test_sacrebleu_is_imported_when_it_is_needed():
    code = "import sys, regard.evaluation.metrics; sys.exit('sacrebleu' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bleu_at_spaces_leaves_tokens_as_they_were_cut():
    """`d.` is one token there, and two as sacreBLEU cuts it: 4/5, 3/4, 2/3, 1/2 of the n-grams are found."""
    hypotheses, references = ["a b c d e."], ["a b c d f."]
    score = METRICS["bleu_as_cut"](hypotheses, references)
    assert score.value == pytest.approx(100 * math.exp(sum(map(math.log, [4 / 5, 3 / 4, 2 / 3, 1 / 2])) / 4))
    assert score.value != pytest.approx(METRICS["bleu"](hypotheses, references).value)
    assert "|tok:none|" in score.signature


@pytest.mark.parametrize("name", OF_TEXT)
def test_a_metric_leaves_nothing_behind_however_often_it_is_asked(name):
    """A run validates thousands of times; sacreBLEU keeps each tokenizer that it makes."""
    needs_installed(name)

    def asked(times):
        for number in range(times):
            METRICS[name]([f"the slave works {number}"], ["the slave works ."])
        gc.collect()
        return Counter(type(one).__name__ for one in gc.get_objects() if str(type(one).__module__).startswith("sacrebleu"))

    gc.freeze()  # what was there before is not looked through, time and again
    try:
        assert asked(3) == asked(12)
    finally:
        gc.unfreeze()


def test_a_label_too_many_or_too_few_is_wrong():
    assert METRICS["accuracy"]([["N", "V", "N"], ["D"], []], [["N", "V"], ["D", "N"], ["N"]]).value == pytest.approx(
        100 * 3 / 6
    )
