"""Rules and ways of drawing beside Hugging Face's, where it is installed; it is no dependency."""

import pytest
import torch

from regard.data.batching import Batch
from regard.decoding.rules import RULES, Request, SearchStep
from regard.recipe import Decoding

pytest.importorskip("transformers")
from transformers.generation import logits_process as theirs

VOCABULARY = 7


def judged(name, written, log_probs, **changes):
    """What the rule makes of the step after these words."""
    rows = len(written)
    rule = RULES[name].requested(Request(Decoding(**changes), Batch({}), torch.full((rows,), 9), target=None))
    state, step = rule.start(), SearchStep(log_probs, None, None)
    for words in torch.cat([torch.full((rows, 1), 2), written], dim=1).T:
        found, state = rule.apply(step, words, state)
    return found.log_probs


@pytest.mark.parametrize("length", [0, 1, 2, 12])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_twice(length, size):
    written, log_probs = torch.randint(4, 7, (20, length)), torch.randn(20, VOCABULARY).log_softmax(-1)
    expected = theirs.NoRepeatNGramLogitsProcessor(size)(written, log_probs) if length else log_probs
    torch.testing.assert_close(judged("no_repeat_ngram", written, log_probs, no_repeat_ngram=size), expected)
    assert length < 12 or expected.isinf().any()


@pytest.mark.parametrize("penalty", [0.5, 1.3])
def test_repetition_penalty(penalty):
    written, log_probs = torch.randint(4, 7, (20, 6)), torch.randn(20, VOCABULARY).log_softmax(-1)
    expected = theirs.RepetitionPenaltyLogitsProcessor(penalty)(written, log_probs)
    torch.testing.assert_close(judged("repetition_penalty", written, log_probs, repetition_penalty=penalty), expected)
