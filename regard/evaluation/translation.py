"""Scores of translations as sacreBLEU (Post 2018) tokenizes and counts: BLEU, chrF, TER. And GLEU, by BLEU's words."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from itertools import zip_longest
from typing import Any

from regard.errors import UserError
from regard.evaluation.score import Counted, References, how_many, paired

LONGEST = 4  # words of the n-grams that GLEU counts
NO_MECAB = "bleu_ja cuts Japanese into words by MeCab, which is not installed: pip install 'sacrebleu[ja]', or take bleu_char"


@cache
def bleu(tokenize: str, effective_order: bool = False) -> Any:
    """One for all calls: sacreBLEU keeps every tokenizer that it has made for as long as the process lives."""
    from sacrebleu.metrics.bleu import BLEU

    try:  # force: no word about text that looks tokenised
        return BLEU(tokenize=tokenize, lowercase=False, force=True, effective_order=effective_order)
    except RuntimeError as error:
        raise UserError(NO_MECAB) from error


@cache
def chrf() -> Any:
    """chrF2 (Popović 2015): the F-score of character n-grams up to 6, recall counting twice."""
    from sacrebleu.metrics.chrf import CHRF

    return CHRF()


@cache
def ter() -> Any:
    """Edits, of which one may move a stretch of words, by words of the reference (Snover et al. 2006); case does not count."""
    from sacrebleu.metrics.ter import TER

    return TER()


def by_sacrebleu(name: str, make: Callable[[], Any], kind: str) -> Counted:
    """One of its metrics, from the numbers that it counts in each sentence; several references are used as it uses them."""

    def rows(hypotheses: Sequence[str], references: References) -> list[list[float]]:
        streams = zip_longest(*(right for _, right in paired(hypotheses, references)))  # the first of each row, the second ...
        return [[float(count) for count in row] for row in make()._extract_corpus_statistics(hypotheses, list(streams))]

    def value(sums: list[float]) -> float:
        return float(make()._compute_score_from_stats(sums).score)

    return Counted(name, rows, value, lambda truth: f"{kind}|{make().get_signature().format()}", make)


def bleu_by(tokenize: str, name: str = "BLEU") -> Counted:
    """Corpus BLEU (Papineni et al. 2002)."""
    return by_sacrebleu(name, lambda: bleu(tokenize), "BLEU")


def sentence_bleu(tokenize: str) -> Callable[[str, str], float]:
    """BLEU of one sentence: orders that it is too short for do not count, those it lacks are smoothed (Chen & Cherry 2014)."""
    return lambda hypothesis, reference: float(bleu(tokenize, True).sentence_score(hypothesis, [reference]).score) / 100


def sentence_chrf(hypothesis: str, reference: str) -> float:
    return float(chrf().sentence_score(hypothesis, [reference]).score) / 100


def sentence_ter(hypothesis: str, reference: str) -> float:
    """1 - TER, and 0 where there are more edits than words."""
    return max(0.0, 1.0 - float(ter().sentence_score(hypothesis, [reference]).score) / 100)


def gleu_rows(hypotheses: Sequence[str], references: References) -> list[tuple[float, int]]:
    """The mean of the sentences' GLEU, each beside the reference that it is nearest to: what training for it raises."""
    return [(max(sentence_gleu(output, one) for one in right), 1) for output, right in paired(hypotheses, references)]


def gleu_signature(references: References) -> str:
    number = how_many(references)
    several = "" if number == "1" else f"nrefs:{number}|"
    return f"GLEU|{several}mean:sentences|n:{LONGEST}|case:mixed|tok:13a"


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
