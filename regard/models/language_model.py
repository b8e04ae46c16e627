"""A decoder without a source: p(text) = Π p(word | words before it)."""

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Int
from pydantic import model_validator
from torch import Tensor

from regard.data.batching import Batch
from regard.data.fields import Shape
from regard.data.tokenizers import END
from regard.models.decoder_alone import AloneDecoder, DecoderAloneConfig
from regard.models.decoders.recurrent import RecurrentDecoder, RecurrentDecoderConfig
from regard.models.generator import Generator, Words
from regard.models.interface import Memory, Steps
from regard.models.limits import Limit, Limits, under
from regard.models.transformer import stack_limit
from regard.recipe import Section, one_of


class RecurrentTextConfig(RecurrentDecoderConfig):
    """A recurrent decoder that has nothing to look at and nothing to start from."""

    attention: None = None
    context: Literal["none"] = "none"
    start_from: Literal["zero"] = "zero"
    copy_words: None = None


class RecurrentText(RecurrentDecoder):
    Config: ClassVar[Any] = RecurrentTextConfig

    def __init__(self, config: RecurrentTextConfig, vocabulary: int) -> None:
        super().__init__(config, vocabulary, memory_size=1, summary_size=1)

    def nothing(self, rows: int) -> Memory:
        """The memory of no source."""
        weight = self.output.weight
        return self.prepare(Memory(weight.new_zeros(rows, 1, 1), weight.new_ones(rows, 1, dtype=torch.bool)))


class TransformerTextConfig(DecoderAloneConfig):
    kind: Literal["transformer"] = "transformer"  # type: ignore[assignment]

    @model_validator(mode="after")
    def one_way(self) -> "TransformerTextConfig":
        if self.two_way_source:
            raise ValueError("`two_way_source` is for a source, and a language model has none")
        return self


class TransformerText(AloneDecoder):
    """An end mark stands before the text, in the place of a source: what came before has ended."""

    Config = TransformerTextConfig

    @property
    def limit(self) -> Limit | None:
        found = stack_limit(self.stack)
        return None if found is None else Limit(found.places - 1, found.key)

    def before(self, rows: int) -> tuple[Int[Tensor, "batch 1"], Int[Tensor, "batch"]]:
        ends = torch.full((rows, 1), END, device=self.output.weight.device)
        return ends, torch.ones_like(ends[:, 0])

    def nothing(self, rows: int) -> Memory:
        return self.read(*self.before(rows))

    def forward(self, tokens: Words, memory: Memory, return_weights: bool = False) -> Steps:
        return self.whole(*self.before(len(tokens)), tokens, return_weights)


BODIES: dict[str, type[RecurrentText] | type[TransformerText]] = {"recurrent": RecurrentText, "transformer": TransformerText}


class LanguageModelConfig(Section):
    columns: ClassVar[dict[str, str]] = {"target": "text"}
    kind: Literal["language_model"] = "language_model"
    decoder: one_of(BODIES) = RecurrentTextConfig()  # type: ignore[valid-type]
    copies_words: ClassVar[bool] = False
    shares_words: ClassVar[bool] = False


class LanguageModel(Generator):
    """The column `target` is all that there is."""

    Config = LanguageModelConfig
    pipeline_tag = "text-generation"
    validate_by = "loss"
    decoder: RecurrentText | TransformerText

    def __init__(self, config: LanguageModelConfig, target: Shape) -> None:
        super().__init__()
        self.decoder = BODIES[config.decoder.kind](config.decoder, target.sizes[0])

    @property
    def has_attention(self) -> bool:  # type: ignore[override]
        return False  # to a source

    @property
    def limits(self) -> Limits:
        return Limits(target=under("model.decoder", self.decoder.limit))

    def encode(self, batch: Batch) -> Memory:
        return self.nothing(len(batch["target"].values))

    def nothing(self, rows: int) -> Memory:
        """What so many texts are written from."""
        return self.decoder.nothing(rows)

    def teacher_forced(self, batch: Batch, words: Words, return_weights: bool = False) -> Steps:
        steps: Steps = self.decoder(words, self.nothing(len(words)), return_weights)
        return steps

    def teacher_forced_each(self, batch: Batch, words: Int[Tensor, "rows target"], count: int) -> Steps:
        return self.teacher_forced(batch, words)
