"""Every rule of decoding. They are asked in this order, and each sees what those before it allow."""

from regard.decoding.rules.lengths import MaxLength, MinLength, limit_met, max_lengths
from regard.decoding.rules.repetition import NoRepeatNgram, RepetitionPenalty
from regard.decoding.rules.rule import FORBIDDEN, DecodingRule, Request, SearchStep, SearchStepFunction, ruled

__all__ = [
    "FORBIDDEN", "RULES", "DecodingRule", "MaxLength", "Request", "SearchStep", "SearchStepFunction", "limit_met",
    "max_lengths", "requested", "ruled",
]  # fmt: skip

RULES: dict[str, type[DecodingRule]] = {
    "max_length": MaxLength,
    "min_length": MinLength,
    "repetition_penalty": RepetitionPenalty,
    "no_repeat_ngram": NoRepeatNgram,
}


def requested(request: Request) -> list[DecodingRule]:
    return [rule for kind in RULES.values() if (rule := kind.requested(request)) is not None]
