"""What outputs must be like, beside being probable. A rule wraps a step, so that a search sees one step and one State tree."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data.batching import Batch
from regard.data.tokenizers import END, Tokenizer
from regard.models.interface import StepFunction
from regard.models.limits import Limits
from regard.recipe import Decoding

FORBIDDEN = float("-inf")


class SearchStep(NamedTuple):
    """What a search sees of one step, for rows of hypotheses."""

    log_probs: Float[Tensor, "rows vocabulary"]  # the model's own; FORBIDDEN where a rule does not allow the word
    weights: Float[Tensor, "rows heads source"] | None
    state: Any  # the model's and every rule's: an immutable tree of tensors whose first dimension is rows
    last: Bool[Tensor, "rows"] | None = None  # outputs that end with this word, whichever it is
    room: Int[Tensor, "rows"] | None = None  # how many words there may still be, this one and the end mark included

    banks: Int[Tensor, "rows vocabulary"] | None = None  # a beam keeps some hypotheses of each of these (`must.py`)
    missing: Int[Tensor, "rows"] | None = None  # words before an end mark, where `log_probs` are still logits (`fused.py`)

    def forbid(self, words: Bool[Tensor, "#rows #vocabulary"]) -> "SearchStep":
        return self._replace(log_probs=self.log_probs.masked_fill(words, FORBIDDEN))

    def cut(self, rows: Bool[Tensor, "rows"]) -> "SearchStep":
        """These outputs get no word after this one, and need no end mark."""
        return self._replace(last=rows if self.last is None else self.last | rows)

    def still_open(self, rows: Bool[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
        return rows if self.last is None else rows & ~self.last


SearchStepFunction = Callable[[Int[Tensor, "rows"], Any], SearchStep]


class Input(NamedTuple):
    """What is asked of one output."""

    decoding: Decoding
    extra: Sequence[bytes] = ()  # the words that its source offers to be copied, and the vocabulary lacks


class Request(NamedTuple):
    """What is known of a batch before its first word is written."""

    decoding: Decoding
    batch: Batch  # the sources, padded
    lengths: Int[Tensor, "batch"]  # of the sources, END included
    target: Tokenizer
    places: Limits = Limits()
    end: int = END  # the token that ends an output
    own: Sequence[Input] = ()  # one for each source, unless all are asked the same

    @property
    def inputs(self) -> Sequence[Input]:
        return self.own or [Input(self.decoding)] * len(self.lengths)


class DecodingRule:
    """Knows the words so far only by what it keeps of them: a State of its own, which the beam re-orders with the model's.
    Every output that is found keeps to every rule, also one that is cut at its limit: `room` says how near that is."""

    static: ClassVar[bool] = False  # whether its State keeps its shape, and nothing is asked of the device

    @classmethod
    def requested(cls, request: Request) -> "DecodingRule | None":
        """The rule for this batch; None where nobody asks for it."""
        raise NotImplementedError

    def start(self) -> Any:
        """Its State before the first word: a tree of tensors with one row for each source of the batch."""
        raise NotImplementedError

    def apply(self, step: SearchStep, words: Int[Tensor, "rows"], state: Any) -> tuple[SearchStep, Any]:
        """What the next word may be, and the State after `words`: the last word of each row, START at first."""
        raise NotImplementedError

    def wrap(self, step: SearchStepFunction, state: Any) -> tuple[SearchStepFunction, Any]:
        def ruled(words: Int[Tensor, "rows"], states: Any) -> SearchStep:
            found = step(words, states[0])
            found, own = self.apply(found, words, states[1])
            return found._replace(state=(found.state, own))

        return ruled, (state, self.start())


def ruled(step: StepFunction, state: Any, rules: Iterable[DecodingRule]) -> tuple[SearchStepFunction, Any]:
    """A model's step under these rules. What is forbidden makes nothing else more probable: scores stay the model's."""

    def scored(words: Int[Tensor, "rows"], state: Any) -> SearchStep:
        logits, weights, state = step(words, state)
        return SearchStep(logits.float().log_softmax(dim=-1), weights, state)

    found: SearchStepFunction = scored
    for rule in rules:
        found, state = rule.wrap(found, state)
    return found, state
