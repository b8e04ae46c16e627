"""Encoder + decoder: translation, summarisation, pronunciation, code from text."""

import itertools
from typing import ClassVar, Literal

from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.data.boxes import Regions
from regard.data.fields import Shape
from regard.errors import UserError
from regard.models.decoders import DECODERS
from regard.models.encoders import ENCODERS
from regard.models.generator import Generator, Words
from regard.models.interface import AttentionWeights, Copies, Decoder, Encoder, Memory, Steps
from regard.models.limits import Limits, limit, smallest, under
from regard.nn.state import repeat_rows
from regard.recipe import Section, one_of


class SequenceToSequenceConfig(Section):
    columns: ClassVar[dict[str, str]] = {"source": "text", "target": "text"}
    kind: Literal["sequence_to_sequence"] = "sequence_to_sequence"
    encoder: one_of(ENCODERS) = ENCODERS["recurrent"].Config()  # type: ignore[valid-type]
    share_embeddings: bool = False  # one table for both sides; needs one vocabulary (data.tokenizer.shared)
    decoder: one_of(DECODERS) = DECODERS["recurrent"].Config()  # type: ignore[valid-type]

    @model_validator(mode="after")
    def states_go_over(self) -> "SequenceToSequenceConfig":
        wanted, given = getattr(self.decoder, "first_states", None), getattr(self.encoder, "last_states", None)
        if wanted is not None and wanted != given:
            raise ValueError(
                "`decoder.start_from: encoder` hands each layer the state that the encoder's ended with, as it is. So both "
                "sides need the same cell, layers and sizes, where the directions of an encoder's layer count together: the "
                f"encoder ends with {in_words(given)}, the decoder begins with {in_words(wanted)}. Make them alike, or set "
                "model.decoder.start_from=projected"
            )
        return self

    @property
    def copies_words(self) -> bool:
        return getattr(self.decoder, "copy_words", None) is not None

    @property
    def shares_words(self) -> bool:
        return self.share_embeddings


def in_words(states: list[str] | None) -> str:
    """Like layers are counted."""
    if states is None:
        return "no states that another network could begin with"
    return " + ".join(f"{len(list(alike))} x {state}" for state, alike in itertools.groupby(states))


class SequenceToSequence(Generator):
    Config = SequenceToSequenceConfig

    def __init__(self, config: SequenceToSequenceConfig, source: Shape, target: Shape) -> None:
        super().__init__()
        encoder, decoder = ENCODERS[config.encoder.kind], DECODERS[config.decoder.kind]
        self.encoder: Encoder = encoder(config.encoder, source)
        sizes = self.encoder.memory_size, self.encoder.summary_size
        self.decoder: Decoder = decoder(config.decoder, target.sizes[0], *sizes)

        if config.share_embeddings:
            self.share_embeddings()

    def share_embeddings(self) -> None:
        if not isinstance(self.encoder.embed, nn.Embedding):
            raise UserError("model.share_embeddings needs words on both sides, and the source is of another kind: leave it out")
        ours, theirs = self.encoder.embed.weight.shape, self.decoder.embed.weight.shape
        if ours != theirs:
            raise UserError(
                f"model.share_embeddings needs tables of one shape, not {tuple(ours)} and {tuple(theirs)}: "
                "set data.tokenizer.shared=true and equal embedding sizes"
            )
        self.encoder.embed = self.decoder.embed

    @property
    def limits(self) -> Limits:
        memory = under("model.decoder", self.decoder.memory_limit)
        source = None if memory is None else limit(self.encoder.tokens_for(memory.places), memory.key)
        return Limits(smallest(under("model.encoder", self.encoder.limit), source), under("model.decoder", self.decoder.limit))

    @property
    def regions(self) -> Regions | None:
        return self.encoder.regions

    def encode(self, batch: Batch) -> Memory:
        return self.decoder.prepare(self.read(batch))

    def read(self, batch: Batch) -> Memory:
        """What every decoder would be handed."""
        source, offered = batch["source"], batch.get("copies")
        memory: Memory = self.encoder(source.values, source.lengths)
        if offered is None or offered.size is None:
            return memory
        return memory._replace(copies=Copies(offered.values, offered.size).over(memory.states.shape[1]))

    def attention_weights(self, batch: Batch) -> list[AttentionWeights]:
        of_target = self.decoder.attention_weights(self.read_words(batch), self.encode(batch))
        return [*of_target, *self.encoder.attention_weights(batch["source"].values)]

    def teacher_forced(self, batch: Batch, words: Words, return_weights: bool = False) -> Steps:
        memory = self.encode(batch)
        steps: Steps = self.decoder(words, memory, return_weights)
        return steps._replace(visible=memory.visible, cost=added(memory.cost, steps.cost))

    def teacher_forced_each(self, batch: Batch, words: Int[Tensor, "rows target"], count: int) -> Steps:
        """The encoder reads each source once for all of them."""
        memory = repeat_rows(self.read(batch)._replace(cost=None), count)
        steps: Steps = self.decoder(words, self.decoder.prepare(memory))
        return steps


def added(one: Float[Tensor, ""] | None, other: Float[Tensor, ""] | None) -> Float[Tensor, ""] | None:
    return other if one is None else one if other is None else one + other
