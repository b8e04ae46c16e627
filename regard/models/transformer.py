"""How a recipe describes a stack of Transformer layers."""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from regard.bounds import DEEPEST, Depth, Size
from regard.errors import UserError
from regard.models.attention import AttentionConfig
from regard.models.experts import LayerExperts
from regard.models.interface import AttentionWeights
from regard.models.limits import Limit, limit, smallest
from regard.models.names import Renamed
from regard.nn.attention import Attention
from regard.nn.attention.scopes import SCOPES
from regard.nn.positions import JOINS, POSITIONS
from regard.nn.transformer.experts import Experts
from regard.nn.transformer.feedforward import FEEDFORWARDS
from regard.nn.transformer.layers import LayerOutput, LayerParts, TransformerStack
from regard.nn.transformer.norms import NORMS
from regard.recipe import Rate, name_of


class HeadsConfig(AttentionConfig):
    """As the Transformer's: (U q) · (W k) / √d with eight heads, and values projected to the model's size."""

    score: Annotated[str, *AttentionConfig.model_fields["score"].metadata] = "projected"
    heads: Size = 8
    bias: bool = False  # of all four projections; the paper has none

    def sized(self, query_size: int, memory_size: int, causal: bool = False) -> Attention:
        """Values of the query's size unless given."""
        return self.model_copy(update={"values": self.values or query_size}).build(query_size, memory_size, causal)


EachInTurn = Annotated[list[HeadsConfig], Field(min_length=1, max_length=DEEPEST)]


class StackConfig(Renamed):
    hidden_size: Size = 512  # of every state; d_model in the paper
    feedforward_size: Size = 2048  # inside the feed-forward networks; d_ff in the paper
    layers: Depth = 6
    attention: HeadsConfig | EachInTurn = HeadsConfig()  # to itself; of a list, layers take theirs in turn
    feedforward: Annotated[str, name_of(FEEDFORWARDS, "feed-forward network")] = "relu"
    experts: LayerExperts | None = None
    norm: Annotated[str, name_of(NORMS, "norm")] = "layer"
    norm_place: Literal["post", "pre"] = "post"  # norm(h + f(h)) or h + f(norm(h))
    positions: Annotated[str, name_of(POSITIONS, "kind of positions")] = "sinusoid"
    positions_join: Literal[JOINS] = "added"  # type: ignore[valid-type]
    longest: Size = 1024  # places that learned positions know
    distance: Size = 32  # beyond it relative positions are all equally far
    dropout: Rate = 0.1
    feedforward_dropout: Rate = 0.0  # inside feed-forward networks, where the paper has none

    @property
    def attentions(self) -> list[HeadsConfig]:
        given = self.attention if isinstance(self.attention, list) else [self.attention]
        return [given[depth % len(given)] for depth in range(self.layers)]

    @model_validator(mode="after")
    def joins_what_is_read(self) -> "StackConfig":
        if self.positions_join != "added" and not POSITIONS[self.positions].absolute:
            read = ", ".join(name for name, kind in POSITIONS.items() if kind.absolute)
            raise ValueError(
                f"positions_join={self.positions_join} is for positions that are part of what is read ({read}), and "
                f"positions={self.positions} are not: leave positions_join out, or take one of these"
            )
        return self

    @model_validator(mode="after")
    def fits_together(self) -> "StackConfig":
        for one in {id(one): one for one in self.attentions}.values():
            if self.hidden_size % one.heads:
                raise ValueError(
                    f"{one.heads} heads cannot share hidden_size={self.hidden_size}: take a size that {one.heads} divides"
                )
            one.check_own()
            if POSITIONS[self.positions].relative and SCOPES[one.scope].compresses:
                raise ValueError(f"positions `{self.positions}` count pairs of places, which scope `{one.scope}` merges")
        return self

    def stack(self, cross: HeadsConfig | None = None, memory_size: int = 0, causal: bool = False) -> TransformerStack:
        """The layers; with attention to a memory if `cross` says how."""
        layers = [self.parts(depth, cross, memory_size, causal) for depth in range(self.layers)]
        positions = POSITIONS[self.positions](
            self.hidden_size, *self.heads_and_part(layers), join=self.positions_join, longest=self.longest,
            distance=self.distance, causal=causal,
        )  # fmt: skip
        stack = TransformerStack(self.hidden_size, layers, positions, self.dropout)
        spread(stack)
        return stack

    def heads_and_part(self, layers: list[LayerParts]) -> tuple[int, int]:
        """Heads, and numbers of a head's queries: one answer for all layers where positions are told in pairs."""
        word = torch.zeros(1, 1, self.hidden_size)
        found = [(one.self_attention.heads, one.self_attention.score.bind_query()(word).shape[-1]) for one in layers]
        if POSITIONS[self.positions].relative and len(set(found)) > 1:
            raise UserError(
                f"positions `{self.positions}` are shared by all layers, whose attentions differ in heads or in their size: "
                "give them equal ones, or take positions that are part of what is read, such as 'sinusoid'"
            )
        return found[0]

    def parts(self, depth: int, cross: HeadsConfig | None, memory_size: int, causal: bool) -> LayerParts:
        own, norm = self.attentions[depth], NORMS[self.norm]
        seen = None if cross is None else cross.sized(self.hidden_size, memory_size)
        return LayerParts(
            own.sized(self.hidden_size, self.hidden_size, causal), seen, self.network(depth), lambda: norm(self.hidden_size),
            self.dropout, self.norm_place == "pre", own.bias, cross is not None and cross.bias,
        )  # fmt: skip

    def network(self, depth: int) -> nn.Module:
        if self.experts is None or (self.layers - 1 - depth) % self.experts.every:
            return FEEDFORWARDS[self.feedforward](self.hidden_size, self.feedforward_size, self.feedforward_dropout)
        return self.experts.build(self.hidden_size, self.feedforward_size, self.feedforward, self.feedforward_dropout)


def self_weights(kind: str, passed: Sequence[LayerOutput]) -> list[AttentionWeights]:
    """Of each layer, where one sequence looked in itself."""
    found = ((layer, one.self_attention.weights) for layer, one in enumerate(passed, start=1))
    return [AttentionWeights(kind, layer, weights[0]) for layer, weights in found if weights is not None]


def cross_weights(passed: Sequence[LayerOutput]) -> list[AttentionWeights]:
    """Of each layer, where one sequence looked in the memory."""
    found = ((layer, one.seen.weights) for layer, one in enumerate(passed, start=1) if one.seen is not None)
    return [AttentionWeights("cross", layer, weights[0]) for layer, weights in found if weights is not None]


def stack_limit(stack: TransformerStack) -> Limit | None:
    """Tokens that a stack has places for."""
    own = (limit(layer.self_attention.attention.score.known_places, "attention.longest") for layer in stack.layers)
    return smallest(limit(stack.positions.known_places, "longest"), *own)


def spread(stack: nn.Module) -> None:
    """Glorot & Bengio 2010: every matrix keeps the size of what passes, forward and backward. Experts have their own."""
    mixtures = [module for module in stack.modules() if isinstance(module, Experts)]
    apart = {id(part) for mixture in mixtures for part in mixture.modules()}
    for module in stack.modules():
        if isinstance(module, nn.Linear) and id(module) not in apart:
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
