"""How a recipe describes a recurrent decoder."""

from typing import Annotated, Any, Literal

from pydantic import model_validator

from regard.bounds import Depth, Size
from regard.models.attention import AttentionConfig
from regard.models.connections import ConnectedLayersConfig
from regard.models.decoders.context import CONTEXTS, QUERY_LAYERS
from regard.models.experts import ExpertsBetween
from regard.nn.copying import COPIES
from regard.nn.recurrent.cells import CELLS
from regard.recipe import Rate, name_of


class RecurrentDecoderConfig(ConnectedLayersConfig):
    kind: Literal["recurrent"] = "recurrent"
    cell: Annotated[str, name_of(CELLS, "cell")] = "gru"
    embedding_size: Size = 256
    hidden_size: Size = 256
    layers: Depth = 1
    attention: AttentionConfig | None = AttentionConfig()
    context: Annotated[str, name_of(CONTEXTS, "use of the context")] = "into_cell"
    asks: Annotated[str, name_of(QUERY_LAYERS, "layer that asks")] = "top"  # the layer whose state is the query
    start_from: Literal["projected", "encoder", "zero"] = "projected"  # s_0: tanh(W summary), the encoder's last states, 0
    dropout: Rate = 0.0
    recurrent_dropout: Rate = 0.0  # on what the past gives, one mask a target
    layer_norm: bool = False  # inside the cell
    tied: bool = False  # the output layer is the embedding, transposed
    copy_words: Annotated[str, name_of(COPIES, "way of copying")] | None = None  # from the source, known words or not
    experts: ExpertsBetween | None = None

    @model_validator(mode="before")
    @classmethod
    def older_name(cls, values: Any) -> Any:
        """`bridge: true` was `projected`, `bridge: false` was `zero`."""
        old = values.get("bridge") if isinstance(values, dict) and "start_from" not in values else None
        if not isinstance(old, bool):
            return values
        rest = {key: value for key, value in values.items() if key != "bridge"}
        return {**rest, "start_from": "projected" if old else "zero"}

    @property
    def first_states(self) -> list[str] | None:
        """What each layer wants of the encoder to start from, in words; None: nothing as it is."""
        return [f"{self.cell} of {self.hidden_size}"] * self.layers if self.start_from == "encoder" else None

    @model_validator(mode="after")
    def experts_have_a_place(self) -> "RecurrentDecoderConfig":
        if self.experts is not None:
            self.experts.place(self.layers)
        return self

    @model_validator(mode="after")
    def attention_and_its_use(self) -> "RecurrentDecoderConfig":
        if (self.attention is None) != (self.context == "none"):
            raise ValueError("`attention: null` goes with `context: none`, and the other way round")
        return self
