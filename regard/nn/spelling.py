"""A word's characters as one vector."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.errors import UserError
from regard.nn.convolution import Convolution
from regard.nn.recurrent.cells import CELLS
from regard.nn.recurrent.layers import RecurrentLayer

Characters = Int[Tensor, "words length"]
Vectors = Float[Tensor, "words size"]


class ConvolutionalSpelling(nn.Module):
    """max_t relu(W [c_{t-k} .. c_{t+k}] + b) over the characters c of a word (Ma & Hovy 2016, section 2.1)."""

    def __init__(self, alphabet: int, character_size: int, size: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(alphabet, character_size)
        self.convolution = Convolution(character_size, size, width, variance=2.0)

    def forward(self, characters: Characters) -> Vectors:
        there = characters != 0
        found = self.convolution.around(self.embed(characters), there).relu()
        return found.masked_fill(~there[..., None], 0.0).amax(dim=1)


class RecurrentSpelling(nn.Module):
    """What an LSTM says after the last character, and one from the right after the first (Lample et al. 2016, section 4.1)."""

    def __init__(self, alphabet: int, character_size: int, size: int, width: int) -> None:
        super().__init__()
        if size % 2:
            raise UserError(f"two directions cannot share {size} elements of a word's spelling: take an even number")
        self.embed = nn.Embedding(alphabet, character_size)
        self.layer = RecurrentLayer(CELLS["lstm"], character_size, size // 2, directions=2)

    def forward(self, characters: Characters) -> Vectors:
        lengths = (characters != 0).sum(dim=1).clamp(min=1)
        _, last = self.layer(self.embed(characters), lengths)
        return torch.cat([state.hidden for state in last], dim=-1)


SPELLINGS: dict[str, type[nn.Module]] = {"convolutional": ConvolutionalSpelling, "recurrent": RecurrentSpelling}
