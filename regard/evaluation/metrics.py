"""How good a model is: one function and one line of METRICS for each metric. A score says which it is."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.data.links import Link, Links
from regard.errors import UserError
from regard.tables import TABLES

if TYPE_CHECKING:
    from regard.decoding.forcing import Likelihood

NO_SURE_LINK = "the gold alignments have no sure link (i-j): the alignment error rate is not defined"


class Score(NamedTuple):
    """A number with its name and, where the field has variants, the signature that tells them apart."""

    name: str
    value: float
    signature: str = ""


class Metric(NamedTuple):
    """An entry of METRICS: a function of what a model gave and what is true, row by row; what it needs; its direction."""

    function: Callable[[Any, Any], Score]
    needs: str = "outputs"  # what a model is asked for: an entry of SOURCES in `evaluate.py`
    higher_is_better: bool = True
    sentence: Callable[[str, str], float] | None = (
        None  # the worth of one output, from 0 to 1: a reward that training may follow
    )

    def __call__(self, found: Any, truth: Any) -> Score:
        return self.function(found, truth)

    def rank(self, value: float) -> float:
        """Higher is better, whatever the metric; one that is not a number is worse than all."""
        return (value if self.higher_is_better else -value) if math.isfinite(value) else -math.inf


def check_paired(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Scores compare line by line: refuse what cannot be paired."""
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses)} hypotheses but {len(references)} references: one reference for each line")
    if not references:
        raise UserError("nothing to score: there is no line in hypotheses and references")


@cache
def sacrebleu_bleu(tokenize: str) -> Any:
    """One for all calls: sacreBLEU keeps every tokenizer that it has made for as long as the process lives."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize=tokenize, lowercase=False, force=True)  # force: no word about text that looks tokenised


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus BLEU (Papineni et al. 2002) of plain text, as sacreBLEU (Post 2018) tokenizes and counts it."""
    check_paired(hypotheses, references)
    metric = sacrebleu_bleu("13a")
    value = metric.corpus_score(hypotheses, [references]).score
    return Score("BLEU", value, f"BLEU|{metric.get_signature().format()}")


def bleu_as_cut(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus BLEU of text that is cut into tokens already, at its spaces: what papers on tokenised files report."""
    check_paired(hypotheses, references)
    metric = sacrebleu_bleu("none")
    value = metric.corpus_score(hypotheses, [references]).score
    return Score("BLEU at spaces", value, f"BLEU|{metric.get_signature().format()}")


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2 (Popović 2015): the F-score of character n-grams up to 6, recall counting twice."""
    from sacrebleu.metrics.chrf import CHRF

    check_paired(hypotheses, references)
    metric = CHRF()
    value = metric.corpus_score(hypotheses, [references]).score
    return Score("chrF2", value, f"chrF2|{metric.get_signature().format()}")


def exact(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """The percentage of lines that equal their reference, spaces at either end aside."""
    check_paired(hypotheses, references)
    pairs = zip(hypotheses, references, strict=True)
    equal = sum(hypothesis.strip() == reference.strip() for hypothesis, reference in pairs)
    return Score("exact", 100.0 * equal / len(references))


def gleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """The mean of the sentences' GLEU: what training for it raises."""
    check_paired(hypotheses, references)
    total = sum(map(sentence_gleu, hypotheses, references))
    return Score("GLEU", 100.0 * total / len(references), f"GLEU|mean:sentences|n:{LONGEST}|case:mixed|tok:13a")


def sentence_gleu(hypothesis: str, reference: str) -> float:
    """min(precision, recall) of the 1- to 4-grams taken together (Wu et al. 2016, section 5): symmetric, from 0 to 1."""
    ours, theirs = stretches(hypothesis), stretches(reference)
    longer = max(ours.total(), theirs.total())
    return (ours & theirs).total() / longer if longer else 1.0


@lru_cache(1 << 12)  # many outputs are judged beside one reference
def stretches(text: str) -> Counter[tuple[str, ...]]:
    """All n-grams up to the longest, of words as BLEU tells them apart."""
    words = in_words()(text).split()
    return Counter(gram for size in range(1, LONGEST + 1) for gram in zip(*(words[at:] for at in range(size)), strict=False))


@cache
def in_words() -> Callable[[str], str]:
    from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

    tokenize: Callable[[str], str] = Tokenizer13a()  # type: ignore[no-untyped-call]
    return tokenize


def sentence_bleu(hypothesis: str, reference: str) -> float:
    """BLEU of one sentence: orders that it is too short for do not count, those it lacks are smoothed (Chen & Cherry 2014)."""
    return float(sentence_metrics()[0].sentence_score(hypothesis, [reference]).score) / 100


def sentence_chrf(hypothesis: str, reference: str) -> float:
    return float(sentence_metrics()[1].sentence_score(hypothesis, [reference]).score) / 100


@cache
def sentence_metrics() -> tuple[Any, Any]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return BLEU(effective_order=True), CHRF()


def sentence_exact(hypothesis: str, reference: str) -> float:
    return float(hypothesis.strip() == reference.strip())


def loss(found: Sequence["Likelihood"], truth: object = None) -> Score:
    """-log p / tokens of the references, in nats per token of the model's own; infinite where none could be read."""
    tokens = sum(one.tokens for one in found)
    return Score("loss", -sum(one.log_prob for one in found) / tokens if tokens else math.inf)


def perplexity(found: Sequence["Likelihood"], truth: object = None) -> Score:
    """e ** loss"""
    nats = loss(found).value
    return Score("perplexity", math.exp(min(nats, 700.0)) if nats < math.inf else math.inf)


def accuracy(found: Sequence[Sequence[str]], truth: Sequence[Sequence[str]]) -> Score:
    """The percentage of labels that are right, over all positions of all rows; one too few or too many is wrong."""
    pairs = list(zip(found, truth, strict=True))
    right = sum(one == other for labels, wanted in pairs for one, other in zip(labels, wanted, strict=False))
    asked = sum(max(len(labels), len(wanted)) for labels, wanted in pairs)
    return Score("accuracy", 100.0 * right / max(asked, 1))


class AlignmentScore(NamedTuple):
    """Shares between 0 and 1; a low error rate is good."""

    error_rate: float
    precision: float
    recall: float


def alignment_error_rate(found: Sequence[AbstractSet[Link]], gold: Sequence[Links]) -> AlignmentScore:
    """AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|) over the whole corpus (Och & Ney 2003)."""
    if len(found) != len(gold):
        raise UserError(f"{len(found)} alignments found but {len(gold)} gold alignments: one for each sentence pair")
    num_found, num_sure = sum(map(len, found)), sum(len(links.sure) for links in gold)
    if not num_sure:
        raise UserError(NO_SURE_LINK)
    in_sure = sum(len(links & truth.sure) for links, truth in zip(found, gold, strict=True))
    in_possible = sum(len(links & truth.possible) for links, truth in zip(found, gold, strict=True))
    error_rate = 1 - (in_sure + in_possible) / (num_found + num_sure)
    return AlignmentScore(error_rate, precision=in_possible / max(num_found, 1), recall=in_sure / num_sure)


def of_alignment(part: str) -> Callable[[Any, Any], Score]:
    return lambda found, gold: Score(f"alignment {part}", getattr(alignment_error_rate(found, gold), part))


def rewards() -> Mapping[str, Callable[[str, str], float]]:
    """Those of METRICS that say what one sentence is worth."""
    return {name: metric.sentence for name, metric in METRICS.items() if metric.sentence is not None}


LONGEST = 4  # words of the n-grams that GLEU counts

METRICS: dict[str, Metric] = {
    "bleu": Metric(bleu, sentence=sentence_bleu),
    "bleu_as_cut": Metric(bleu_as_cut),
    "chrf": Metric(chrf, sentence=sentence_chrf),
    "gleu": Metric(gleu, sentence=sentence_gleu),
    "exact": Metric(exact, sentence=sentence_exact),
    "loss": Metric(loss, "likelihood", higher_is_better=False),
    "perplexity": Metric(perplexity, "likelihood", higher_is_better=False),
    "accuracy": Metric(accuracy, "labels"),
    "aer": Metric(of_alignment("error_rate"), "links", higher_is_better=False),
    "alignment_precision": Metric(of_alignment("precision"), "links"),
    "alignment_recall": Metric(of_alignment("recall"), "links"),
}
TABLES["metric"] = lambda: METRICS
TABLES["reward"] = rewards
