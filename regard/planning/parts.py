"""What a model is made of: a part for every parameter."""

from collections import Counter

from torch import nn

from regard.nn.attention import Attention
from regard.nn.convolution import Convolution
from regard.nn.positions import Positions
from regard.nn.recurrent.cell import Cell
from regard.nn.recurrent.connections import Connection
from regard.nn.transformer.experts import Experts
from regard.nn.transformer.feedforward import FeedForward
from regard.nn.transformer.layers import Layer
from regard.nn.transformer.norms import LayerNorm

KINDS: dict[type[nn.Module], str] = {
    nn.Embedding: "embeddings",
    Positions: "positions",
    LayerNorm: "norms",
    nn.LayerNorm: "norms",
    Attention: "attention",
    Experts: "experts",
    FeedForward: "feed-forward",
    Cell: "cells",
    Connection: "connections",
    Convolution: "convolutions",
    Layer: "attention",  # what is a layer's own: the projections behind its attentions
}


def part_of(model: nn.Module, name: str) -> str:
    """`encoder.attention` for the parameter of that path: the innermost module that has a kind tells, or else what its side
    calls it. Experts and attentions own whatever is in them."""
    side, *path = steps = name.split(".")
    module, kinds = model, list[str]()
    for step in steps[:-1]:
        module = getattr(module, step)
        kinds += [kind for type_, kind in KINDS.items() if isinstance(module, type_)]
    if "embeddings" in kinds:
        return "embeddings"
    if "output" in steps[:2]:
        return "output"
    whole = next((kind for kind in kinds if kind in ("experts", "cells")), None)
    if not kinds and (not path or not any(True for _ in getattr(model, side).children())):
        return side  # a layer of the model itself
    return f"{side}.{whole or (kinds[-1] if kinds else path[0])}"


def parts(model: nn.Module) -> dict[str, str]:
    """The part of each parameter; one that has several names (tied, shared) has its first."""
    return {name: part_of(model, name) for name, _ in model.named_parameters()}


def parameters(model: nn.Module) -> dict[str, int]:
    """Numbers by part."""
    sizes = Counter[str]()
    for name, parameter in model.named_parameters():
        sizes[part_of(model, name)] += parameter.numel()
    return dict(sizes)
