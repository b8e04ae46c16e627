"""All layers of a Transformer's decoder for one word of each row, in one call of layers.c. What that lacks goes by layers."""

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.engine import native
from regard.engine.native import NativeProduct, Weights, place_of
from regard.nn.transformer.feedforward import GELU, FeedForward, SwiGLU, Swish
from regard.nn.transformer.norms import BatchNorm, LayerNorm, ResidualStream, RMSNorm

if TYPE_CHECKING:
    from regard.engine.transformer import DecoderLayer

NORMS: list[type[LayerNorm]] = [LayerNorm, RMSNorm, BatchNorm]  # in the order of layers.c
ACTIVATIONS: list[type[FeedForward]] = [FeedForward, GELU, Swish, SwiGLU]
PRODUCTS = ("project", "output", "ask", "cross_output", "up", "down")
NORMED = ("after_self", "after_cross", "after_feedforward")
Place, Number = ctypes.c_void_p, ctypes.c_long


class Norm(ctypes.Structure):
    _fields_ = (("weight", Place), ("offset", Place), ("kind", Number), ("eps", ctypes.c_float))


class Layer(ctypes.Structure):
    _fields_ = (*((name, Weights) for name in PRODUCTS), *((name, Norm) for name in NORMED))


SIZES = ("count", "size", "heads", "key", "value", "cross_heads", "cross_key", "cross_value", "activation")


class Stack(ctypes.Structure):
    _fields_ = (("layers", Place), *((name, Number) for name in SIZES))


class Word(ctypes.Structure):
    _fields_ = (
        *((name, Number) for name in ("rows", "times", "places", "slots", "sharers", "source", "half")),
        *((name, Place) for name in ("own", "ancestors", "memory", "visible", "total", "read", "weights")),
    )


class Seen(NamedTuple):
    """What the words of a batch look at beside their past: the keys and values of each layer, and which are visible."""

    pairs: Sequence[Float[Tensor, "batch heads source both"]]
    visible: Bool[Tensor, "batch source"] | None
    places: Any  # of the pairs, as C has them

    @classmethod
    def of(cls, pairs: Sequence[Tensor], visible: Tensor | None) -> "Seen":
        return cls(pairs, visible, (Place * len(pairs))(*map(place_of, pairs)))


class WholeStep:
    """The layers of one decoder, and the product that reads what they give."""

    def __init__(self, run: Callable[[Any, Any], int], layers: Sequence["DecoderLayer"], last: NativeProduct) -> None:
        self.run, self.kept = run, list[Tensor | None]()
        first, each = layers[0], [[*products(layer).values()] for layer in layers]
        follow_each_other([*itertools.chain(*each), last])
        self.layers = (Layer * len(layers))(*map(self.layer, layers))
        self.owners, self.kept_as = (each, last), first.kept
        activation = ACTIVATIONS.index(type(first.layer.feedforward))  # type: ignore[arg-type]
        self.heads, self.size = first.cross.count, first.layer.after_self.norm.weight.shape[0]
        sizes = len(layers), self.size, *first.heads.sizes, *first.cross.sizes, activation
        self.stack = Stack(ctypes.addressof(self.layers), *sizes)

    def layer(self, layer: "DecoderLayer") -> Layer:
        norms = (self.norm(getattr(layer.layer, name).norm) for name in NORMED)
        return Layer(*(one.weights for one in products(layer).values()), *norms)

    def norm(self, norm: LayerNorm) -> Norm:
        weight, offset = norm.weight.detach().float(), None if norm.offset is None else norm.offset.detach().float()
        if isinstance(norm, BatchNorm):
            weight = weight * (norm.variance + norm.eps).rsqrt()
            offset = norm.offset.detach().float() - norm.mean * weight
        kept = [None if one is None else one.contiguous() for one in (weight, offset)]
        self.kept += kept
        return Norm(*map(place_of, kept), NORMS.index(type(norm)), norm.eps)

    def __call__(
        self, stream: ResidualStream, own: Float[Tensor, "layers slots heads places both"],
        ancestors: Int[Tensor, "rows time"], seen: Seen,
    ) -> tuple[Float[Tensor, "rows size"], Float[Tensor, "rows layers*heads source"]]:  # fmt: skip
        """What is read after the last layer, and where all heads looked. The stream and the caches are written in place."""
        rows, time = ancestors.shape
        batch, _, source, _ = seen.pairs[0].shape
        weights = stream.total.new_empty(rows, len(self.layers) * self.heads, source)
        moved = None if rows == batch == own.shape[1] else ancestors  # a row of its own for each sentence stays where it is
        assert own.dtype == seen.pairs[0].dtype == self.kept_as
        assert stream.total.dtype == stream.read.dtype == torch.float32
        past, written = map(place_of, (own, moved)), map(place_of, (seen.visible, *stream, weights))
        places = *past, ctypes.addressof(seen.places), *written
        half = own.dtype == torch.bfloat16
        word = Word(rows, time, own.shape[3], own.shape[1], rows // batch, source, half, *places)
        if not self.run(ctypes.byref(self.stack), ctypes.byref(word)):
            raise MemoryError(f"no memory for a step of {rows} rows")
        return stream.read, weights


def products(layer: "DecoderLayer") -> dict[str, Any]:
    """In the order in which they are used."""
    each = layer.project, layer.output, layer.ask, layer.cross_output, layer.feed.up, layer.feed.down
    return dict(zip(PRODUCTS, each, strict=True))


def follow_each_other(chain: Sequence[NativeProduct]) -> None:
    """While one is computed the weights of the next are fetched; after the last comes the first."""
    for one, following in zip(chain, [*chain[1:], chain[0]], strict=True):
        one.weights.after = following.weights.weight


def whole_step(layers: Sequence["DecoderLayer"], last: Any) -> WholeStep | None:
    """Where there is a library, and it has all that these layers are made of."""
    library, used = native.library(), [one for layer in layers for one in products(layer).values()]
    known = all(type(layer.layer.feedforward) in ACTIVATIONS for layer in layers)
    known &= len({(layer.heads.sizes, layer.cross.sizes, type(layer.layer.feedforward)) for layer in layers}) == 1
    known &= all(type(getattr(layer.layer, name).norm) in NORMS for layer in layers for name in NORMED)
    if library is None or not known or not all(isinstance(one, NativeProduct) for one in [*used, last]):
        return None
    return WholeStep(library.decode_word, layers, last)
