"""What stands before every encoder body: a column's values -> vectors [batch, source, size]. INPUTS names the ways."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from regard.bounds import Size, Width
from regard.data.fields import Shape
from regard.errors import RecipeError
from regard.nn.linear import Linear
from regard.nn.spelling import SPELLINGS
from regard.recipe import Section, choose, name_of, one_of

Table = Callable[[int, int], nn.Module]  # of a vocabulary's size and a vector's: how an encoder makes its embeddings


class WordsConfig(Section):
    kind: Literal["words"] = "words"


class FeaturesConfig(Section):
    kind: Literal["features"] = "features"


class PatchesConfig(Section):
    kind: Literal["patches"] = "patches"
    side: Size = 4  # pixels of a square


class Features(nn.Module):
    """x_t -> W x_t + b: vectors of the data's size as vectors of the model's."""

    def __init__(self, config: FeaturesConfig, shape: Shape, size: int, table: Table) -> None:
        super().__init__()
        self.project = Linear(shape.sizes[-1], size)

    def forward(self, values: Float[Tensor, "batch time elements"]) -> Float[Tensor, "batch time size"]:
        projected: Tensor = self.project(values)
        return projected


class Patches(nn.Module):
    """An image cut into squares, line by line, each a vector: W pixels + b + its place (Dosovitskiy et al. 2021, eq. 1)."""

    def __init__(self, config: PatchesConfig, shape: Shape, size: int, table: Table) -> None:
        super().__init__()
        height, width, channels = shape.sizes
        if height % config.side or width % config.side:
            raise RecipeError(
                f"model.encoder.input.side={config.side} does not divide images of {height} x {width} pixels: take one that "
                "does, or scale them with data.fields.source.height and width"
            )
        self.cut = nn.Unfold(config.side, stride=config.side)
        self.project = Linear(channels * config.side**2, size)
        self.places = nn.Parameter(torch.randn(height * width // config.side**2, size) * size**-0.5)

    def forward(self, values: UInt8[Tensor, "batch height width channels"]) -> Float[Tensor, "batch patches size"]:
        pixels = values.permute(0, 3, 1, 2).to(self.places.dtype) / 255
        projected: Tensor = self.project(self.cut(pixels).transpose(1, 2))
        return projected + self.places.to(projected.dtype)


class CharactersConfig(Section):
    kind: Literal["characters"] = "characters"
    spelling: Annotated[str, name_of(SPELLINGS, "reader of characters")] = "convolutional"
    size: Size = 64  # elements of each vector that its characters give; the rest is the word's own
    character_size: Size = 32
    width: Width = 3  # characters that a convolution reads at once


class WordsAndCharacters(nn.Module):
    """[e(word); s(its characters)]"""

    def __init__(self, config: CharactersConfig, shape: Shape, size: int, table: Table) -> None:
        super().__init__()
        words, alphabet, _ = shape.sizes
        if config.size >= size:
            raise RecipeError(
                f"model.encoder.input.size={config.size} of {size} elements leaves none to the word itself: take fewer, or a "
                "larger embedding_size"
            )
        self.words = table(words, size - config.size)
        self.spelling = SPELLINGS[config.spelling](alphabet, config.character_size, config.size, config.width)

    def forward(self, values: Int[Tensor, "batch time spelled"]) -> Float[Tensor, "batch time size"]:
        words: Tensor = self.words(values[..., 0])
        spelled: Tensor = self.spelling(values[..., 1:].flatten(0, 1)).view(*words.shape[:2], -1)
        return torch.cat([words, spelled.to(words.dtype)], dim=-1)


class Input(NamedTuple):
    """A way from values to vectors."""

    Config: type[Section]
    fields: tuple[str, ...]  # the kinds of columns that it reads
    build: Callable[[Any, Shape, int, Table], nn.Module]


INPUTS: dict[str, Input] = {
    "words": Input(WordsConfig, ("text",), lambda config, shape, size, table: table(shape.sizes[0], size)),
    "features": Input(FeaturesConfig, ("vectors",), Features),
    "patches": Input(PatchesConfig, ("image",), Patches),
    "characters": Input(CharactersConfig, ("spelled",), WordsAndCharacters),
}

InputConfig = one_of(INPUTS) | None  # None: the first that reads the column's kind


def build_input(config: Any, shape: Shape, size: int, table: Table) -> nn.Module:
    """As the recipe has it, or the first that reads this kind of column."""
    fitting = [name for name, each in INPUTS.items() if shape.kind in each.fields]
    name = config.kind if config is not None else next(iter(fitting), "words")
    chosen = choose(INPUTS, name, "input")
    if shape.kind not in chosen.fields:
        told = f"input `{name}` reads {' or '.join(chosen.fields)}, and the column is of kind `{shape.kind}`"
        raise RecipeError(f"model.encoder.input: {told}; {'take ' + ' or '.join(fitting) if fitting else 'no input reads it'}")
    return chosen.build(config or chosen.Config(), shape, size, table)
