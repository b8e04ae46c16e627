"""What encoders, decoders and searches agree on."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

State = TypeVar("State")


class Memory(NamedTuple):
    """What an encoder hands to a decoder: once a sentence, however many hypotheses read it."""

    states: Float[Tensor, "batch source size"]
    visible: Bool[Tensor, "batch source"]
    summary: Float[Tensor, "batch summary"]
    keys: Tensor | None = None  # the decoder's view of `states`, prepared once


class Step(NamedTuple):
    """What one decoding step returns, for rows of hypotheses (several may belong to one sentence)."""

    logits: Float[Tensor, "rows vocabulary"]
    weights: Float[Tensor, "rows source"] | None
    state: Any  # an immutable tree of tensors whose first dimension is rows


class Steps(NamedTuple):
    """All steps of a known target at once: what the output layer reads, and where each step looked."""

    outputs: Float[Tensor, "batch target size"]
    weights: Float[Tensor, "batch target source"] | None


class Encoder(nn.Module):
    """Source tokens -> Memory."""

    memory_size: int
    summary_size: int

    def forward(self, tokens: Int[Tensor, "batch source"], lengths: Int[Tensor, "batch"]) -> Memory:
        raise NotImplementedError

    def past(self, tokens: Int[Tensor, "batch source"]) -> Float[Tensor, "batch source source"] | None:
        """Where each position of whole rows looked while it was read, if this encoder attends to what it reads."""
        return None


class Decoder(nn.Module):
    """`forward` (teacher forcing) and repeated `step` compute the same thing: the first law."""

    has_attention: bool = True  # whether steps tell where they looked

    def prepare(self, memory: Memory) -> Memory:
        """Add what is computed once a sentence."""
        return memory

    def start(self, memory: Memory) -> Any:
        """The State before the first step, one row a sentence."""
        raise NotImplementedError

    def stepper(self, memory: Memory) -> "StepFunction":
        """One step as a function that reads this memory: what can be computed once for all steps is."""
        raise NotImplementedError

    def step(self, tokens: Int[Tensor, "rows"], memory: Memory, state: Any) -> Step:
        return self.stepper(memory)(tokens, state)

    def forward(self, tokens: Int[Tensor, "batch target"], memory: Memory) -> Steps:
        raise NotImplementedError

    def loss(
        self, outputs: Float[Tensor, "batch target size"], target: Int[Tensor, "batch target"], label_smoothing: float = 0.0
    ) -> Float[Tensor, ""]:
        """Σ -log p(target), padding aside; a share `label_smoothing` of the truth lies on all words alike."""
        raise NotImplementedError

    def logits(self, outputs: Float[Tensor, "*rows size"]) -> Float[Tensor, "*rows vocabulary"]:
        raise NotImplementedError


StepFunction = Callable[[Tensor, Any], Step]
