"""The largest of many scores. On a CPU PyTorch is quick to find the largest of a row and slow to find where it stands, which is
therefore looked for in short pieces of it only."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

PIECE = 256
LONG, MANY = 4096, 1 << 17  # scores of a row, and of all rows, from which on that is worth it


def largest(scores: Float[Tensor, "rows all"]) -> tuple[Float[Tensor, "rows"], Int[Tensor, "rows"]]:
    """As `scores.max(dim=-1)`: the first of equal ones."""
    if not in_pieces(scores):
        best, index = scores.max(dim=-1)
        return best, index
    values, places = around(scores, 1)
    best, index = values.max(dim=-1)
    return best, places.gather(1, index[:, None])[:, 0]


def top(scores: Float[Tensor, "rows all"], count: int) -> tuple[Float[Tensor, "rows count"], Int[Tensor, "rows count"]]:
    """As `scores.topk(count)`, of which equal ones may come in any order."""
    if not in_pieces(scores) or 4 * count * PIECE > scores.shape[1]:
        best, index = scores.topk(count)
        return best, index
    values, places = around(scores, count)
    best, index = values.topk(count)
    return best, places.gather(1, index)


def in_pieces(scores: Float[Tensor, "rows all"]) -> bool:
    return scores.device.type == "cpu" and scores.shape[1] >= LONG and scores.numel() >= MANY


def around(scores: Float[Tensor, "rows all"], count: int) -> tuple[Float[Tensor, "rows some"], Int[Tensor, "rows some"]]:
    """The pieces that have the largest maxima, in which the `count` largest must be, and what is left over behind the last
    piece; and where each score stands."""
    rows, whole = len(scores), scores.shape[1] // PIECE * PIECE
    maxima = scores[:, :whole].reshape(rows, -1, PIECE).amax(dim=-1)
    best = maxima.max(dim=-1, keepdim=True).indices if count == 1 else maxima.topk(count).indices
    inside = (best[..., None] * PIECE + torch.arange(PIECE)).flatten(1)
    behind = torch.arange(whole, scores.shape[1]).expand(rows, -1)
    places = torch.cat([inside, behind], dim=1)
    return scores.gather(1, places), places
