"""From scores of all words to the best: by two launches, neither log-probabilities nor scores in float32 in memory.

log p_v = x_v - log Σ_u exp x_u. What may not come yet (`missing`: so many words are to stand before the end mark) leaves the
sum as it is, for what is forbidden makes nothing else more probable.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from regard.nn.kernels.machine import DTYPES, here, or_else, power_of_two
from regard.nn.kernels.steps.early import early

Logits = Float[Tensor, "rows vocabulary"]
BLOCK = 1024  # words of a program
MANY = 1024  # programs, from which on one warp each is enough, whose lanes need not wait for each other
MOST = 1 << 14  # candidates of a sentence that one program compares


class GreedyRows(NamedTuple):
    """What greedy search keeps of each row."""

    words: Int[Tensor, "rows"]  # which the next step reads
    tokens: Int[Tensor, "rows places"]  # the last place is nobody's
    lengths: Int[Tensor, "rows"]
    totals: Float[Tensor, "rows"]
    open: Bool[Tensor, "rows"]
    left: Int[Tensor, "rows"]  # how many words there may still be
    places: Int[Tensor, "rows"]
    missing: Int[Tensor, "rows"] | None  # how many there must be before the end mark


class Ranked(NamedTuple):
    """Of each block of words."""

    values: Float[Tensor, "rows blocks count"]
    words: Int[Tensor, "rows blocks count"]
    tops: Float[Tensor, "rows blocks"]
    sums: Float[Tensor, "rows blocks"]


def applies(logits: Logits, width: int = 1, count: int = 1) -> bool:
    """Whether this machine can."""
    blocks = -(-logits.shape[1] // BLOCK)
    small = power_of_two(width) * power_of_two(blocks * count) <= MOST
    return here(logits) and logits.dtype in DTYPES and small and logits.shape[1] >= count


def rank(logits: Logits, count: int, end: int, missing: Int[Tensor, "rows"] | None) -> Ranked:
    from regard.nn.kernels.steps.words_tiles import rank_block

    rows, vocabulary = logits.shape
    blocks = -(-vocabulary // BLOCK)
    values, tops, sums = (
        torch.empty(rows, blocks, *more, dtype=torch.float32, device=logits.device) for more in ((count,), (), ())
    )
    words = torch.empty(values.shape, dtype=torch.int32, device=logits.device)
    rank_block[(rows, blocks)](
        logits.contiguous(), *or_else(words, missing), values, words, tops, sums, count, blocks, vocabulary, end,
        LEAST=missing is not None, B=BLOCK, num_warps=4 if rows * blocks < MANY else 1, **early(rows),
    )  # fmt: skip
    return Ranked(values, words, tops, sums)


def best_words(
    logits: Logits, totals: Float[Tensor, "batch width"], count: int, end: int, left: Int[Tensor, "rows"],
    missing: Int[Tensor, "rows"] | None = None,
) -> tuple[Float[Tensor, "batch count"], Int[Tensor, "batch count"]]:  # fmt: skip
    """The best `count` continuations of each sentence's hypotheses by total + log p, and hypothesis · vocabulary + word."""
    (batch, width), vocabulary = totals.shape, logits.shape[1]
    if not applies(logits, width, count):
        return plain_best_words(logits, totals, count, end, left, missing)
    from regard.nn.kernels.steps.words_tiles import rank_beam

    ranked = rank(logits, count, end, missing)
    blocks = ranked.tops.shape[1]
    out, chosen = totals.new_empty(batch, count), torch.empty(batch, count, dtype=torch.long, device=totals.device)
    rank_beam[(batch,)](
        *ranked, totals.contiguous(), *or_else(left, missing), left, out, chosen, count, blocks, vocabulary, WIDTH=width,
        LEAST=missing is not None, W=1 << (width - 1).bit_length(), N=power_of_two(blocks), Z=power_of_two(blocks * count),
        num_warps=8, **early(len(logits)),
    )  # fmt: skip
    return out, chosen


def plain_best_words(
    logits: Logits, totals: Float[Tensor, "batch width"], count: int, end: int, left: Int[Tensor, "rows"],
    missing: Int[Tensor, "rows"] | None = None,
) -> tuple[Float[Tensor, "batch count"], Int[Tensor, "batch count"]]:  # fmt: skip
    """The specification."""
    log_probs = allowed(logits, end, left, missing)
    found = (totals[..., None] + log_probs.view(*totals.shape, -1)).flatten(1).topk(count)
    return found.values, found.indices


def allowed(logits: Logits, end: int, left: Int[Tensor, "rows"], missing: Int[Tensor, "rows"] | None) -> Logits:
    """log p of what may come."""
    log_probs = logits.float().log_softmax(dim=-1)
    if missing is None:
        return log_probs
    ends = torch.arange(logits.shape[1], device=logits.device) == end
    return log_probs.masked_fill(((missing > 0)[:, None] & ends) | (missing > left)[:, None], float("-inf"))


def step_greedily(logits: Logits, rows: GreedyRows, end: int) -> None:
    """The best word of each row, which is written where `rows` are kept."""
    if not applies(logits):
        return plain_step_greedily(logits, rows, end)
    from regard.nn.kernels.steps.words_tiles import step_greedily

    ranked = rank(logits, 1, end, rows.missing)
    blocks = ranked.tops.shape[1]
    step_greedily[(len(logits),)](
        *ranked, *rows[:4], rows.open.view(torch.uint8), rows.left, *or_else(rows.left, rows.missing), rows.places, blocks,
        rows.tokens.shape[1] - 1, end, LEAST=rows.missing is not None, N=power_of_two(blocks), num_warps=1,
        **early(len(logits)),
    )  # fmt: skip
    return None


def plain_step_greedily(logits: Logits, rows: GreedyRows, end: int) -> None:
    """The specification."""
    best, words = allowed(logits, end, rows.left, rows.missing).max(dim=1)
    rows.totals.add_(best.where(rows.open, 0.0))
    rows.tokens.scatter_(1, rows.places[:, None], words.where(rows.open, end)[:, None])
    rows.lengths.add_(rows.open)
    rows.open.logical_and_((words != end) & (rows.left > 1))
    rows.words.copy_(words)
    rows.left.sub_(1)
    rows.places.add_(1).clamp_(max=rows.tokens.shape[1] - 1)
    if rows.missing is not None:
        rows.missing.sub_(1)


def enter(
    words: Int[Tensor, "rows"], embed: Float[Tensor, "vocabulary size"], table: Float[Tensor, "places size"] | None,
    places: Int[Tensor, "rows"], scale: float,
) -> Float[Tensor, "rows size"]:  # fmt: skip
    """scale · E[word] + p[place]; behind the last place there is no other."""
    size = embed.shape[1]
    if not (here(embed) and embed.dtype in DTYPES):
        states = functional.embedding(words, embed) * scale
        return states if table is None else states + table[places.clamp(max=len(table) - 1)].to(states.dtype)
    from regard.nn.kernels.steps.words_tiles import enter

    out = embed.new_empty(len(words), size)
    last = 1 if table is None else len(table)
    enter[(len(words),)](
        words, embed, *or_else(embed, table), places, out, scale, last, SIZE=size, C=power_of_two(size),
        ADDS=table is not None, num_warps=4, **early(len(words)),
    )  # fmt: skip
    return out
