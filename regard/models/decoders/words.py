"""From the top of a decoder to words: the output layer, and copying beside it."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.data.tokenizers import PAD, UNKNOWN
from regard.models.interface import AttentionWeights, Decoder, Memory, Steps
from regard.nn.copying import COPIES, Copying, copy_weights, copying_loss, extended_logits
from regard.nn.cross_entropy import linear_cross_entropy
from regard.nn.embedding import Embedding
from regard.nn.linear import Linear
from regard.recipe import choose


class WordDecoder(Decoder):
    """A decoder whose outputs are scored against every word, and against the source's where it copies."""

    def add_words(
        self, size: int, vocabulary: int, *, tied: bool, bias: bool, copy_words: str | None = None, memory_size: int = 0,
        draws: bool = False,
    ) -> None:  # fmt: skip
        """Embeddings of `size` numbers, the output layer, and what copying and hard attention need."""
        self.embed = Embedding(vocabulary, size)
        self.output = Linear(size, vocabulary, bias)
        if bias:
            nn.init.zeros_(self.output.bias)
        if tied:
            self.output.weight = self.embed.weight
        self.copies_words = copy_words is not None
        way = None if copy_words is None else choose(COPIES, copy_words, "way of copying")
        self.copy_words = None if way is None else way(size, memory_size)
        self.register_buffer("reward_baseline", torch.zeros(vocabulary) if draws else None)

    def words(self, tokens: Int[Tensor, "*rows"]) -> Float[Tensor, "*rows size"]:
        """Embeddings; a word that was copied though nobody knows it is read as the unknown one."""
        known = tokens.where(tokens < self.embed.num_embeddings, UNKNOWN) if self.copies_words else tokens
        found: Tensor = self.embed(known)
        return found

    def copy_keys(self, memory: Memory) -> Float[Tensor, "batch source output"] | None:
        return None if self.copy_words is None else self.copy_words.prepare(memory.states)

    def copying(self, outputs: Float[Tensor, "batch target size"], memory: Memory) -> Copying | None:
        if self.copy_words is None:
            return None
        assert memory.copies is not None, "a decoder that copies is told what"
        found: Copying = self.copy_words(outputs, memory.keys.copying, memory.visible, *memory.copies)
        return found

    def copy_weights(self, steps: Steps) -> list[AttentionWeights]:
        """Of one row: how probable each step makes it to copy each word of the source, and to generate one."""
        if steps.copying is None:
            return []
        weights = copy_weights(self.output(self.finished(steps.outputs)), steps.copying)
        return [AttentionWeights("copy", 1, weights)]

    def finished(self, outputs: Float[Tensor, "batch target size"]) -> Float[Tensor, "batch target size"]:
        """What the output layer reads."""
        return outputs

    def loss(self, steps: Steps, target: Int[Tensor, "batch target"], label_smoothing: float = 0.0) -> Float[Tensor, ""]:
        outputs = self.finished(steps.outputs)
        if steps.copying is None:
            return linear_cross_entropy(outputs, self.output, target, PAD, label_smoothing)
        return copying_loss(outputs, self.output, target, steps.copying, PAD, label_smoothing)

    def logits(self, steps: Steps) -> Float[Tensor, "batch target vocabulary"]:
        scores: Tensor = self.output(self.finished(steps.outputs))
        return scores if steps.copying is None else extended_logits(scores, steps.copying)
