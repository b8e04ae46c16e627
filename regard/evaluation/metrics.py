"""How good a model is: one line of METRICS for each metric. A score says which it is."""

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from regard.corpora.programs import executes_as
from regard.data.boxes import Boxes
from regard.data.links import Link, Links
from regard.errors import UserError
from regard.evaluation import edits, labels, rouge, translation
from regard.evaluation.score import Counted as Counted
from regard.evaluation.score import References, how_many, paired, percent
from regard.evaluation.score import Score as Score
from regard.evaluation.translation import sentence_gleu as sentence_gleu
from regard.tables import TABLES

if TYPE_CHECKING:
    from regard.decoding.forcing import Likelihood

NO_SURE_LINK = "the gold alignments have no sure link (i-j): the alignment error rate is not defined"


class Metric(NamedTuple):
    """An entry of METRICS: a function of what a model gave and what is true, row by row; what it needs; its direction."""

    function: Callable[[Any, Any], Score]  # one that is `Counted` has intervals too
    needs: str = "outputs"  # what a model is asked for: an entry of SOURCES in `evaluate.py`
    higher_is_better: bool = True
    sentence: Callable[[str, str], float] | None = (
        None  # the worth of one output, from 0 to 1: a reward that training may follow
    )
    usual: bool = True  # whether `evaluate` tells it without being asked for it
    perfect: float = math.nan  # the value that no model can beat, where outputs are often right to the last word
    nothing: float = math.nan  # the value from which on outputs are as good as none

    def __call__(self, found: Any, truth: Any) -> Score:
        return self.function(found, truth)

    def rank(self, value: float) -> float:
        """Higher is better, whatever the metric; one that is not a number is worse than all."""
        return (value if self.higher_is_better else -value) if math.isfinite(value) else -math.inf

    @property
    def highest(self) -> float:
        """The rank that nothing beats; NaN where there is none."""
        return self.perfect if self.higher_is_better else -self.perfect

    @property
    def lowest(self) -> float:
        """The rank up to which outputs are as good as none."""
        return self.rank(self.nothing)

    def ready(self) -> None:
        """Refuse, before anything is trained, a metric that needs what is not installed."""
        if isinstance(self.function, Counted):
            self.function.ready()


def exact_rows(hypotheses: Sequence[str], references: References) -> list[tuple[float, int]]:
    """Whether it equals a reference, spaces at either end aside."""
    return [(max(sentence_exact(output, one) for one in right), 1) for output, right in paired(hypotheses, references)]


def executed_rows(hypotheses: Sequence[str], references: References) -> list[tuple[float, int]]:
    """Whether a program gives what a reference gives, for every test."""
    return [(max(executes_as(output, one) for one in right), 1) for output, right in paired(hypotheses, references)]


def exact_signature(references: References) -> str:
    return "" if (number := how_many(references)) == "1" else f"exact|nrefs:{number}|any"


def sentence_exact(hypothesis: str, reference: str) -> float:
    return float(hypothesis.strip() == reference.strip())


def nats_and_tokens(found: Sequence["Likelihood"], truth: object = None) -> list[tuple[float, int]]:
    return [(-one.log_prob, one.tokens) for one in found]


def nats_per_token(sums: list[float]) -> float:
    """-log p / tokens of the references, in nats per token of the model's own; infinite where none could be read."""
    nats, tokens = sums or (0.0, 0.0)
    return nats / tokens if tokens else math.inf


def perplexity(sums: list[float]) -> float:
    """e ** loss"""
    nats = nats_per_token(sums)
    return math.exp(min(nats, 700.0)) if nats < math.inf else math.inf


def nats_and_words(found: Sequence["Likelihood"], truth: Sequence[str]) -> list[tuple[float, int]]:
    """A row has as many words as spaces separate, and its end."""
    return [(-one.log_prob, len(text.split()) + 1) for one, text in zip(found, truth, strict=True)]


def nats_and_characters(found: Sequence["Likelihood"], truth: Sequence[str]) -> list[tuple[float, int]]:
    """A row has so many code points, and its end, which is a line feed in a file."""
    return [(-one.log_prob, len(text) + 1) for one, text in zip(found, truth, strict=True)]


def bits(sums: list[float]) -> float:
    return nats_per_token(sums) / math.log(2)


def points_inside(found: Sequence[Sequence[tuple[float, float]]], truth: Sequence[Boxes]) -> list[tuple[int, int]]:
    """Of the words that have a box, how many were looked for inside it."""
    return [
        (sum(word < len(points) and box.holds(*points[word]) for word, box in boxes.items()), len(boxes))
        for points, boxes in zip(found, truth, strict=True)
    ]


class AlignmentScore(NamedTuple):
    """Shares between 0 and 1; a low error rate is good."""

    error_rate: float
    precision: float
    recall: float


def link_counts(found: Sequence[AbstractSet[Link]], gold: Sequence[Links]) -> list[tuple[int, int, int, int]]:
    """|A∩S|, |A∩P|, |A| and |S| of each pair of sentences."""
    if len(found) != len(gold):
        raise UserError(f"{len(found)} alignments found but {len(gold)} gold alignments: one for each sentence pair")
    if not any(truth.sure for truth in gold):
        raise UserError(NO_SURE_LINK)
    return [
        (len(links & truth.sure), len(links & truth.possible), len(links), len(truth.sure))
        for links, truth in zip(found, gold, strict=True)
    ]


def alignment_score(sums: list[float]) -> AlignmentScore:
    """AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|) over the whole corpus (Och & Ney 2003)."""
    in_sure, in_possible, found, sure = sums
    error_rate = 1 - (in_sure + in_possible) / max(found + sure, 1)
    return AlignmentScore(error_rate, precision=in_possible / max(found, 1), recall=in_sure / max(sure, 1))


def alignment_error_rate(found: Sequence[AbstractSet[Link]], gold: Sequence[Links]) -> AlignmentScore:
    return alignment_score([float(sum(column)) for column in zip(*link_counts(found, gold), strict=True)])


def of_alignment(part: str) -> Counted:
    return Counted(f"alignment {part}", link_counts, lambda sums: float(getattr(alignment_score(sums), part)))


def rewards() -> Mapping[str, Callable[[str, str], float]]:
    """Those of METRICS that say what one sentence is worth."""
    return {name: metric.sentence for name, metric in METRICS.items() if metric.sentence is not None}


def bleu_of(tokenize: str, name: str, usual: bool = False) -> Metric:
    return Metric(translation.bleu_by(tokenize, name), sentence=translation.sentence_bleu(tokenize), usual=usual, nothing=1.0)


def errors_of(name: str, compare: edits.Compare, unit: str, nothing: float, usual: bool = True) -> Metric:
    """Endless outputs have more errors than those that are short and wrong; `nothing` is what the latter reach."""
    rate, worth = edits.error_rate(name, compare, unit), edits.worth(compare)
    return Metric(rate, "outputs", False, worth, usual, perfect=0.0, nothing=nothing)


def rouge_of(kind: str, measure: str, stem: bool) -> Metric:
    worth = rouge.sentence_f(kind, stem) if measure == "f" else None  # precision and recall alone are easily had
    return Metric(rouge.rouge(kind, measure, stem), sentence=worth, usual=False)


def likelihood_by(name: str, rows: Callable[..., Any], value: Callable[[list[float]], float], counting: str) -> Metric:
    return Metric(Counted(name, rows, value, lambda truth: counting), "text likelihood", higher_is_better=False, usual=False)


METRICS: dict[str, Metric] = {
    "bleu": bleu_of("13a", "BLEU", usual=True),
    "bleu_as_cut": Metric(translation.bleu_by("none", "BLEU at spaces")),  # of text that is cut already, as papers report it
    "bleu_zh": bleu_of("zh", "BLEU zh"),
    "bleu_ja": bleu_of("ja-mecab", "BLEU ja"),
    "bleu_char": bleu_of("char", "BLEU char"),
    "chrf": Metric(translation.by_sacrebleu("chrF2", translation.chrf, "chrF2"), sentence=translation.sentence_chrf),
    "ter": Metric(
        translation.by_sacrebleu("TER", translation.ter, "TER"), "outputs", False, translation.sentence_ter, usual=False
    ),
    "gleu": Metric(Counted("GLEU", translation.gleu_rows, percent, translation.gleu_signature), sentence=sentence_gleu),
    "exact": Metric(Counted("exact", exact_rows, percent, exact_signature), sentence=sentence_exact, perfect=100.0),
    "execution": Metric(
        Counted("execution", executed_rows, percent), sentence=executes_as, usual=False, perfect=100.0
    ),  # of the corpus `programs`
    "wer": errors_of("WER", edits.words, "word", 90.0),
    "cer": errors_of("CER", edits.characters, "character", 75.0),
    "per": errors_of("PER", edits.words_anywhere, "word in any place", 75.0, usual=False),
    **{  # rougeL, rougeL_recall, rougeL_stemmed, rougeL_recall_stemmed and so on
        f"rouge{kind}{part}{'_stemmed' if stem else ''}": rouge_of(kind, part.removeprefix("_") or "f", stem)
        for stem, part, kind in product((False, True), ("", "_precision", "_recall"), rouge.KINDS)
    },
    "loss": Metric(Counted("loss", nats_and_tokens, nats_per_token), "likelihood", higher_is_better=False),
    "perplexity": Metric(Counted("perplexity", nats_and_tokens, perplexity), "likelihood", higher_is_better=False),
    "word_perplexity": likelihood_by("word perplexity", nats_and_words, perplexity, "words:spaces|row end:1"),
    "bits_per_character": likelihood_by("bits per character", nats_and_characters, bits, "code points|row end:1"),
    "accuracy": Metric(Counted("accuracy", labels.labels_right, percent), "labels", perfect=100.0),
    "macro_f1": Metric(labels.MACRO_F1, "labels", perfect=100.0),
    "span_f1": Metric(labels.SPAN_F1, "labels", usual=False, perfect=100.0),
    "aer": Metric(of_alignment("error_rate"), "links", higher_is_better=False),
    "alignment_precision": Metric(of_alignment("precision"), "links"),
    "alignment_recall": Metric(of_alignment("recall"), "links"),
    "pointing": Metric(Counted("pointing", points_inside, percent), "boxes", perfect=100.0),
}
TABLES["metric"] = lambda: METRICS
TABLES["reward"] = rewards
