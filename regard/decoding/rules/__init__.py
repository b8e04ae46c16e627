"""Every rule of decoding. They are asked in this order, and each sees what those before it allow."""

from regard.decoding.rules.inputs import Asked, Each, each_asked, inputs_of
from regard.decoding.rules.lengths import MaxLength, MinLength, limit_met, max_lengths
from regard.decoding.rules.must import Must
from regard.decoding.rules.repetition import NoRepeatNgram, RepetitionPenalty
from regard.decoding.rules.rule import FORBIDDEN, DecodingRule, Input, Request, SearchStep, SearchStepFunction, ruled
from regard.decoding.rules.texts import Ban, MatchPattern, OnlyVocabulary, Prefix
from regard.recipe import Decoding

__all__ = [
    "FORBIDDEN", "RULES", "Asked", "DecodingRule", "Each", "Input", "MaxLength", "Request", "SearchStep", "SearchStepFunction",
    "each_asked", "inputs_of", "limit_met", "max_lengths", "requested", "ruled", "unmet",
]  # fmt: skip

RULES: dict[str, type[DecodingRule]] = {
    "max_length": MaxLength,
    "min_length": MinLength,
    "repetition_penalty": RepetitionPenalty,
    "no_repeat_ngram": NoRepeatNgram,
    "prefix": Prefix,
    "ban": Ban,
    "only_words": OnlyVocabulary,
    "pattern": MatchPattern,
    "must": Must,
}


def requested(request: Request) -> list[DecodingRule]:
    return [rule for kind in RULES.values() if (rule := kind.requested(request)) is not None]


def unmet(decoding: Decoding) -> str:
    """What is said of an input for which a search found nothing."""
    rules = [key for key in RULES if key != "max_length" and getattr(decoding, key, None) is not None]
    told = f" ({', '.join(rules)})" if rules else ""
    why = f"they contradict each other, or beam={decoding.beam} and max_length={decoding.max_length} leave no way"
    return f"no output was found that keeps to all rules{told}: {why}"
