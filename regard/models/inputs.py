"""What stands before every encoder body: a column's values -> vectors [batch, source, size]. INPUTS names the ways."""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from pydantic import Field, model_validator
from torch import Tensor, nn

from regard.bounds import Depth, Size, Width
from regard.data.fields import Shape
from regard.errors import RecipeError
from regard.nn.grid import GRID_NORMS, GRID_POSITIONS, GridBlock
from regard.nn.linear import Linear
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.layers import RecurrentLayer
from regard.nn.spelling import SPELLINGS
from regard.recipe import Rate, Section, choose, name_of, one_of

Table = Callable[[int, int], nn.Module]  # of a vocabulary's size and a vector's: how an encoder makes its embeddings


class WordsConfig(Section):
    kind: Literal["words"] = "words"


class FeaturesConfig(Section):
    kind: Literal["features"] = "features"


class PatchesConfig(Section):
    kind: Literal["patches"] = "patches"
    side: Size = 4  # pixels of a square


Stride = Annotated[int, Field(gt=0, le=64)]


class ConvolutionsConfig(Section):
    """A few blocks of convolutions, one over the other: each makes the grid coarser by its stride."""

    kind: Literal["convolutions"] = "convolutions"
    channels: Annotated[tuple[Size, ...], Field(min_length=1, max_length=32)] = (32, 64, 128)  # of each block
    strides: Annotated[tuple[Stride | tuple[Stride, Stride], ...], Field(max_length=32)] = (2, 2, 2)  # or [rows, columns]
    depth: Depth = 1  # convolutions of a block
    norm: Annotated[str, name_of(GRID_NORMS, "norm of a grid")] = "renorm"
    positions: Annotated[str, name_of(GRID_POSITIONS, "kind of positions in a grid")] = "learned"
    row_cell: Annotated[str, name_of(CELLS, "cell")] | None = None  # reads each row of the grid, both ways
    dropout: Rate = 0.0  # on what each block gives

    @model_validator(mode="after")
    def a_stride_for_each(self) -> "ConvolutionsConfig":
        if len(self.strides) != len(self.channels):
            raise ValueError(f"{len(self.channels)} blocks (channels) and {len(self.strides)} strides: give one for each block")
        return self

    @property
    def both_strides(self) -> list[tuple[int, int]]:
        return [(stride, stride) if isinstance(stride, int) else stride for stride in self.strides]


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
        self.grid, self.cell = (height // config.side, width // config.side), (config.side, config.side)
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


class Convolutions(nn.Module):
    """An image as a grid of vectors, line by line: convolutions, W x + b, the cell's place in two dimensions; and what a
    recurrent network knows that read its row from the left and from the right (Deng et al. 2017), if it is asked for."""

    def __init__(self, config: ConvolutionsConfig, shape: Shape, size: int, table: Table) -> None:
        super().__init__()
        height, width, channels = shape.sizes
        norm, strides = choose(GRID_NORMS, config.norm, "norm of a grid"), config.both_strides
        self.cell = math.prod(rows for rows, _ in strides), math.prod(columns for _, columns in strides)  # pixels
        self.grid = -(-height // self.cell[0]), -(-width // self.cell[1])
        self.blocks = nn.Sequential(*(
            GridBlock(inputs, outputs, config.depth, stride, norm, config.dropout)
            for inputs, outputs, stride in zip((channels, *config.channels), config.channels, strides, strict=False)
        ))  # fmt: skip
        self.project = Linear(config.channels[-1], size)
        self.places = choose(GRID_POSITIONS, config.positions, "kind of positions in a grid")(*self.grid, size)
        if config.row_cell is not None and size % 2:
            raise RecipeError(f"model.encoder.input.row_cell gives half of each vector a direction: {size} elements are odd")
        cell = None if config.row_cell is None else choose(CELLS, config.row_cell, "cell")
        self.rows = None if cell is None else RecurrentLayer(cell, size, size // 2, directions=2)

    def forward(self, values: UInt8[Tensor, "batch height width channels"]) -> Float[Tensor, "batch cells size"]:
        grid = self.places(self.project(self.blocks(values.to(self.project.weight.dtype) / 255)))
        if self.rows is not None:
            grid = self.rows(grid.flatten(0, 1))[0].view(grid.shape)
        vectors: Tensor = grid.flatten(1, 2)
        return vectors


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
    "convolutions": Input(ConvolutionsConfig, ("image",), Convolutions),
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
