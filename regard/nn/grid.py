"""Pictures as grids of vectors: convolutions and places in two dimensions. GRID_NORMS and GRID_POSITIONS name the kinds."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.dropout import Dropout
from regard.nn.positions import Sinusoid
from regard.nn.transformer.norms import BatchNorm, LayerNorm, RMSNorm

Grid = Float[Tensor, "batch height width size"]
Stride = tuple[int, int]  # of rows and of columns


class GroupNorm(nn.GroupNorm):
    """(x - mean) / √(variance + ε) of some elements over all cells of a picture  (Wu & He 2018), and of no other picture."""

    GROUPS = 8

    def __init__(self, size: int) -> None:
        super().__init__(math.gcd(size, self.GROUPS), size)

    def forward(self, cells: Float[Tensor, "batch cells size"]) -> Float[Tensor, "batch cells size"]:
        return super().forward(cells.transpose(1, 2)).transpose(1, 2)


class BatchRenorm(BatchNorm):
    """As BatchNorm, brought to the means of training by r = σ_B / σ and d = (μ_B - μ) / σ, which have no gradient
    (Ioffe 2017): what comes out is the same in training and in use, and tells nothing of the other pictures of a batch."""

    def forward(
        self, states: Float[Tensor, "batch cells size"], visible: Bool[Tensor, "batch cells"] | None = None
    ) -> Float[Tensor, "batch cells size"]:
        if not self.training:
            return super().forward(states, visible)
        mean, variance = self.moments(states, visible)
        spread, usual = (variance + self.eps).sqrt(), (self.variance + self.eps).sqrt()
        ratio, shift = (spread / usual).detach(), ((mean - self.mean) / usual).detach()
        return ((states - mean) / spread * ratio + shift) * self.weight + self.offset


# Of the elements of a cell: over the picture, over all pictures of a batch, over the cell alone
GRID_NORMS: dict[str, Callable[[int], nn.Module]] = {
    "group": GroupNorm,
    "renorm": BatchRenorm,
    "batch": BatchNorm,
    "layer": LayerNorm,
    "rms": RMSNorm,
}


class GridConvolution(nn.Module):
    """relu(norm(W * x)) with 3 x 3 filters W: what lies beyond the edge of a picture is 0."""

    def __init__(self, inputs: int, outputs: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.filters = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)  # the norm has an offset
        self.norm = norm(outputs)

    def forward(self, grid: Float[Tensor, "batch height width input"]) -> Grid:
        found = self.filters(grid.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return functional.relu(self.norm(found.flatten(1, 2)).view(found.shape))


class GridBlock(nn.Module):
    """x_1 = f_1(x), then x_{k+1} = x_k + f_{k+1}(x_k): `depth` convolutions; of each rectangle of `stride` the largest stays.

    So cell (i, j) of what comes out lies over rectangle (i, j) of what went in."""

    def __init__(
        self, inputs: int, outputs: int, depth: int, stride: Stride, norm: Callable[[int], nn.Module], dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.stride, self.dropout = stride, Dropout(dropout)
        self.layers = nn.ModuleList(GridConvolution(outputs if layer else inputs, outputs, norm) for layer in range(depth))

    def forward(self, grid: Float[Tensor, "batch height width input"]) -> Float[Tensor, "batch rows columns size"]:
        first, *rest = self.layers
        grid = first(grid)
        for layer in rest:
            grid = grid + layer(grid)
        largest = functional.max_pool2d(grid.permute(0, 3, 1, 2), self.stride, ceil_mode=True)
        dropped: Tensor = self.dropout(largest.permute(0, 2, 3, 1))
        return dropped


class GridPositions(nn.Module):
    """Nothing: a cell knows where it is only by what convolutions saw of the edges."""

    def __init__(self, height: int, width: int, size: int) -> None:
        super().__init__()
        self.height, self.width, self.size = height, width, size
        self.build()

    def build(self) -> None:
        """Its parameters."""

    def forward(self, grid: Grid) -> Grid:
        return grid


class LearnedGrid(GridPositions):
    """x_ij + r_i + c_j: a vector for each row and one for each column."""

    def build(self) -> None:
        self.rows = nn.Parameter(torch.randn(self.height, 1, self.size) * self.size**-0.5)
        self.columns = nn.Parameter(torch.randn(1, self.width, self.size) * self.size**-0.5)

    def forward(self, grid: Grid) -> Grid:
        return grid + (self.rows + self.columns).to(grid.dtype)


class SinusoidGrid(GridPositions):
    """x_ij + [p_i; p_j]: half of the elements tell the row and half the column, as sinusoids (Vaswani et al. 2017)."""

    def forward(self, grid: Grid) -> Grid:
        half = self.size // 2
        down = Sinusoid(half).encode(torch.arange(self.height, device=grid.device)[None])[0]
        along = Sinusoid(self.size - half).encode(torch.arange(self.width, device=grid.device)[None])[0]
        both = torch.cat([down[:, None].expand(-1, self.width, -1), along[None].expand(self.height, -1, -1)], dim=-1)
        return grid + both.to(grid.dtype)


GRID_POSITIONS: dict[str, type[GridPositions]] = {"none": GridPositions, "learned": LearnedGrid, "sinusoid": SinusoidGrid}
