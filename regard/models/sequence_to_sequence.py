"""Encoder + decoder: translation, summarisation, pronunciation, code from text."""

import itertools
from typing import Literal

from jaxtyping import Float, Int
from pydantic import model_validator
from torch import Tensor

from regard.errors import UserError
from regard.models.decoders import DECODERS
from regard.models.encoders import ENCODERS
from regard.models.interface import Copies, Decoder, Encoder, Memory, Model, Steps
from regard.models.limits import Limits, limit, smallest, under
from regard.recipe import Section, one_of


class SequenceToSequenceConfig(Section):
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


class SequenceToSequence(Model):
    Config = SequenceToSequenceConfig

    def __init__(self, config: SequenceToSequenceConfig, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        encoder, decoder = ENCODERS[config.encoder.kind], DECODERS[config.decoder.kind]
        self.encoder: Encoder = encoder(config.encoder, source_vocabulary)
        self.decoder: Decoder = decoder(config.decoder, target_vocabulary, self.encoder.memory_size, self.encoder.summary_size)

        if config.share_embeddings:
            self.share_embeddings()

    def share_embeddings(self) -> None:
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

    def encode(
        self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, "batch"], copies: Copies | None = None
    ) -> Memory:
        return self.decoder.prepare(self.read(source, lengths, copies))

    def read(self, source: Int[Tensor, "batch source"], lengths: Int[Tensor, "batch"], copies: Copies | None) -> Memory:
        """What every decoder would be handed."""
        memory: Memory = self.encoder(source, lengths)
        return memory._replace(copies=None if copies is None else copies.over(memory.states.shape[1]))

    def self_attention_weights(self, tokens: Int[Tensor, "batch source"]) -> Float[Tensor, "batch source source"] | None:
        """Where source words looked while they were read, if the encoder attends to what it reads."""
        return self.encoder.self_attention_weights(tokens)

    def decode(
        self,
        source: Int[Tensor, "batch source"],
        lengths: Int[Tensor, "batch"],
        target: Int[Tensor, "batch target"],
        copies: Copies | None = None,
        look: bool = False,
    ) -> Steps:
        """Teacher forcing up to the layer under the logits."""
        memory = self.encode(source, lengths, copies)
        steps: Steps = self.decoder(target, memory, look)
        return steps._replace(visible=memory.visible, cost=added(memory.cost, steps.cost))


def added(one: Float[Tensor, ""] | None, other: Float[Tensor, ""] | None) -> Float[Tensor, ""] | None:
    return other if one is None else one if other is None else one + other
