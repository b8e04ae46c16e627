"""How a recipe describes mixtures of experts (Shazeer et al. 2017)."""

from typing import Annotated

from pydantic import Field, model_validator

from regard.bounds import Amount, Depth, Size
from regard.models.names import Renamed
from regard.nn.transformer.experts import Between, Experts
from regard.nn.transformer.feedforward import FEEDFORWARDS
from regard.recipe import Positive, name_of


class ExpertsConfig(Renamed):
    num_experts: Annotated[int, Field(gt=0, le=4096)] = 4
    top_k: Positive = 2  # experts per token
    capacity: Annotated[Amount, Field(gt=0)] | None = None  # tokens an expert takes in training, in shares of the mean
    noise: bool = True
    balance: Amount = 0.01

    @model_validator(mode="after")
    def enough(self) -> "ExpertsConfig":
        if self.top_k > self.num_experts:
            raise ValueError(f"top_k={self.top_k} of num_experts={self.num_experts}")
        return self

    def build(self, size: int, inner: int, activation: str, dropout: float = 0.0) -> Experts:
        options = self.model_dump(include=set(ExpertsConfig.model_fields))
        return Experts(size, inner, activation=activation, dropout=dropout, **options)


class LayerExperts(ExpertsConfig):
    """In the place of some feed-forward networks of a Transformer."""

    every: Positive = 2  # one layer in so many has experts, the last of them first


class ExpertsBetween(ExpertsConfig):
    """Between two recurrent layers."""

    feedforward_size: Size = 1024  # inside each expert
    feedforward: Annotated[str, name_of(FEEDFORWARDS, "feed-forward network")] = "relu"
    sigmoid: bool = True  # of what comes out, before it is added to what went in
    under: Annotated[Depth, Field(ge=2)] | None = None  # the layer that reads it, counted from 1; the last unless given

    def place(self, layers: int) -> int:
        """The layer above them."""
        if not 2 <= (self.under or layers) <= layers:
            raise ValueError(f"experts stand between two layers: there is none under layer {self.under or layers} of {layers}")
        return self.under or layers

    def between(self, size: int) -> Between:
        return Between(self.build(size, self.feedforward_size, self.feedforward), self.sigmoid)
