"""How a recipe describes what connects recurrent layers."""

from typing import Annotated

from pydantic import model_validator
from torch import nn

from regard.models.attention import OwnAttentionConfig, memory_limit
from regard.models.limits import Limit, smallest
from regard.nn.attention import Attention
from regard.nn.recurrent.connections import CONNECTIONS, SelfAttending
from regard.recipe import Positive, Section, name_of


class ConnectedLayersConfig(Section):
    connections: Annotated[str, name_of(CONNECTIONS, "connection")] = "plain"  # between layers
    connect_from: Positive = 1  # the lowest layer that has the connection over it
    connect_top: bool = False  # whether the top layer has it too
    self_attention: OwnAttentionConfig | None = None  # of a connection that attends; additive, one head, unless given

    @model_validator(mode="after")
    def somebody_attends(self) -> "ConnectedLayersConfig":
        if self.self_attention is not None and not CONNECTIONS[self.connections].attends:
            attend = ", ".join(name for name, kind in CONNECTIONS.items() if kind.attends)
            raise ValueError(f"`self_attention` is for connections that attend ({attend}), not for `{self.connections}`")
        return self

    def attend(self, size: int, causal: bool) -> Attention:
        """Of states of this size to one another."""
        return (self.self_attention or OwnAttentionConfig()).build(size, size, causal)


def places_below(layers: nn.Module) -> Limit | None:
    """States that the attentions between layers have places for."""
    attentions = (one.attention.attention for one in layers.modules() if isinstance(one, SelfAttending))
    return smallest(*(memory_limit(one, "self_attention.longest") for one in attentions))
