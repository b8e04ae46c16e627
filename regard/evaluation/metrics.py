"""How good the written output is: one function and one line of METRICS for each metric. A score says which it is."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

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


LONGEST = 4  # words of the n-grams that GLEU counts

METRICS: dict[str, Callable[[Sequence[str], Sequence[str]], Score]] = {
    "bleu": bleu,
    "bleu_as_cut": bleu_as_cut,
    "chrf": chrf,
    "gleu": gleu,
    "exact": exact,
}

# what one output is worth beside its reference, from 0 to 1
REWARDS: dict[str, Callable[[str, str], float]] = {
    "gleu": sentence_gleu,
    "bleu": sentence_bleu,
    "chrf": sentence_chrf,
    "exact": sentence_exact,
}
