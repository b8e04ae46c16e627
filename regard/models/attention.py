"""How a recipe describes an attention."""

from typing import Annotated

from pydantic import model_validator

from regard.bounds import Size, Temperature
from regard.models.limits import Limit, limit
from regard.nn.attention import ACTIVATIONS, SCOPES, SCORES, SELECTIONS, Attention
from regard.recipe import Rate, Section, name_of


class AttentionConfig(Section):
    score: Annotated[str, name_of(SCORES, "attention score")] = "additive"
    size: Size | None = None  # of what queries and keys are projected to; the query's size unless given
    heads: Size = 1
    values: Size | None = None  # numbers of all heads that the memory is projected to; the memory itself unless given
    scope: Annotated[str, name_of(SCOPES, "scope of attention")] = "global"
    window: Size = 10  # of local scopes: keys to either side, or of a block
    selection: Annotated[str, name_of(SELECTIONS, "selection")] = "soft"
    temperature: Temperature = 1.0
    softness: Rate = 0.5  # the share of sentences that hard attention reads softly while it learns
    activation: Annotated[str, name_of(ACTIVATIONS, "activation")] = "tanh"  # of the score `network`
    longest: Size = 512  # places that the score `location` knows
    coverage: bool = False  # scores know what has been looked at

    @model_validator(mode="after")
    def heads_share(self) -> "AttentionConfig":
        shared = {"size": self.size if SCORES[self.score].projects else None, "values": self.values}
        for name, given in shared.items():
            if given is not None and given % self.heads:
                raise ValueError(f"{self.heads} heads cannot share {name}={given}: take a number that {self.heads} divides")
        return self

    def check_own(self) -> None:
        """ValueError for what makes sense only of attention to a source."""
        if SCOPES[self.scope].moves or self.coverage:
            raise ValueError("`monotonic` and `coverage` follow earlier looks at a source: not for a sequence's own attention")
        if SELECTIONS[self.selection].draws:
            raise ValueError(
                f"selection `{self.selection}` is taught by what looks at a source earn: take `gumbel` for a sequence's own"
            )

    def build(self, query_size: int, memory_size: int, causal: bool = False) -> Attention:
        return Attention(query_size, memory_size, causal=causal, **self.model_dump())


class PoolingAttentionConfig(AttentionConfig):
    """A learned query looks at all states at once."""

    @model_validator(mode="after")
    def at_once(self) -> "PoolingAttentionConfig":
        if self.scope != "global" or self.coverage or SELECTIONS[self.selection].draws:
            raise ValueError("a learned query has no place and one step: leave scope and coverage out, and draw nothing")
        return self


class OwnAttentionConfig(AttentionConfig):
    """Of a sequence to itself."""

    @model_validator(mode="after")
    def looks_at_itself(self) -> "OwnAttentionConfig":
        self.check_own()
        return self


def memory_limit(attention: Attention, key: str) -> Limit | None:
    """States that an attention to a memory has places for."""
    known, scope = attention.score.known_places, attention.scope
    return limit(None if known is None else known * (scope.window if scope.compresses else 1), key)
