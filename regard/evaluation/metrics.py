"""How good the written output is: one function and one line of METRICS for each metric. A score says which it is."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from regard.errors import UserError


class Score(NamedTuple):
    """A number with its name and, where the field has variants, the signature that tells them apart."""

    name: str
    value: float
    signature: str = ""


def check_paired(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Scores compare line by line: refuse what cannot be paired."""
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses)} hypotheses but {len(references)} references: one reference for each line")
    if not references:
        raise UserError("nothing to score: there is no line in hypotheses and references")


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus BLEU (Papineni et al. 2002) of plain text, as sacreBLEU (Post 2018) tokenizes and counts it."""
    from sacrebleu.metrics.bleu import BLEU

    check_paired(hypotheses, references)
    metric = BLEU(tokenize="13a", lowercase=False, force=True)  # force: no word about text that looks tokenised
    value = metric.corpus_score(hypotheses, [references]).score
    return Score("BLEU", value, f"BLEU|{metric.get_signature().format()}")


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


METRICS: dict[str, Callable[[Sequence[str], Sequence[str]], Score]] = {"bleu": bleu, "chrf": chrf, "exact": exact}
