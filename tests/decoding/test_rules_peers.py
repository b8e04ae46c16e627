"""Rules and ways of drawing beside Hugging Face's, where it is installed; it is no dependency."""

import pytest
import torch

from regard.data.batching import Batch
from regard.decoding.rules import RULES, Request, SearchStep
from regard.decoding.sampling import Sampling, draw
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


@pytest.mark.parametrize(
    ("options", "warper"),
    [({"min_p": 0.2}, theirs.MinPLogitsWarper(0.2)), ({"typical_p": 0.5}, theirs.TypicalLogitsWarper(0.5)),
     ({"typical_p": 0.95}, theirs.TypicalLogitsWarper(0.95))],
)  # fmt: skip
def test_what_is_drawn_from(options, warper):
    log_probs = (2 * torch.randn(20, VOCABULARY)).log_softmax(-1)
    expected = warper(None, log_probs).exp() > 0
    chances = (torch.arange(2000) + 0.5) / 2000
    for row, support in zip(log_probs, expected, strict=True):
        counts = draw(row.expand(2000, -1), chances, Sampling(**options)).bincount(minlength=VOCABULARY)
        assert set(counts.nonzero().flatten().tolist()) <= set(support.nonzero().flatten().tolist())
        likely = support & (row.exp() > 0.01)
        assert bool((counts[likely] > 0).all())
