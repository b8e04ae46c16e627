"""Draw words instead of searching for the best ones: ancestral sampling, sharpened or cut off."""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from regard.bounds import Seed, Temperature
from regard.decoding.greedy import Written, read, watched
from regard.decoding.hypothesis import Found, require_numbers
from regard.decoding.ranking import NORMALISATIONS
from regard.decoding.rules import FORBIDDEN, SearchStepFunction
from regard.decoding.streaming import Watch
from regard.decoding.trace import Trace
from regard.nn.state import repeat_rows
from regard.recipe import Positive, Section, choose

BITS = 40  # of a random number: so few that u < 1 stays below any sum that it is compared with


class Sampling(Section):
    """How words are drawn. Temperature first, then the best `top_k`, then of these the nucleus, and so on in this order."""

    seed: Seed = 1
    temperature: Temperature = 1.0  # p ** (1 / temperature), normalised
    top_k: Positive | None = None  # draw from so many words at most (Fan et al. 2018)
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None  # from the fewest that are so probable (Holtzman et al. 2020)
    min_p: Annotated[float, Field(gt=0, le=1)] | None = None  # of those so probable beside the best one (Nguyen et al. 2024)
    typical_p: Annotated[float, Field(gt=0, le=1)] | None = None  # from the fewest of usual information (Meister et al. 2022)


def sample(
    step: SearchStepFunction,
    state: Any,
    start: Int[Tensor, "batch"],
    *,
    chances: Float[Tensor, "batch count longest"],
    end: int,
    sampling: Sampling,
    length_penalty: float = 0.0,
    length_norm: str = "power",
    watch: Watch | None = None,
    trace: Trace | None = None,
) -> list[list[Found]]:
    """`count` outputs of each sentence in the order they were drawn, duplicates and all; chances[i, j, t] decides on word t of
    the j-th. `log_prob` is the model's own, whatever the temperature. There are fewer where rules allow nothing."""
    count = chances.shape[1]
    state, words, chances = repeat_rows(state, count), start.repeat_interleave(count), chances.flatten(0, 1)
    totals, open_ = torch.zeros_like(words, dtype=torch.float32), torch.ones_like(words, dtype=torch.bool)
    drawn, lengths, stopped = list[Tensor](), torch.zeros_like(words), torch.zeros_like(open_)
    own = torch.arange(count, device=start.device).expand(len(start), count)  # each continues itself
    while not drawn or open_.any():
        found_step = step(words, state)
        log_probs, state = require_numbers(found_step.log_probs), found_step.state
        words = draw(log_probs, chances[:, len(drawn)], sampling)
        if trace is not None:
            trace.add(log_probs.view(len(start), count, -1), found_step.weights, own, words.view(len(start), count))
        totals = totals + torch.where(open_, log_probs.gather(1, words[:, None]).squeeze(1), 0.0)
        drawn.append(torch.where(open_, words, end))
        lengths = lengths + open_
        open_ = found_step.still_open(open_ & (words != end))
        if watch is not None:
            open_, stopped = watched(watch, torch.stack(drawn, dim=1), totals, open_, stopped)
    normalise = choose(NORMALISATIONS, length_norm, "normalisation of length")
    written = Written(torch.stack(drawn, dim=1), lengths, totals, stopped)
    found = read(written, end, lambda length: normalise(length, length_penalty), None, trace, count)
    return [[one for one in found[begin : begin + count] if one.log_prob > FORBIDDEN] for begin in range(0, len(found), count)]


def draw(
    log_probs: Float[Tensor, "rows vocabulary"], chances: Float[Tensor, "rows"], sampling: Sampling
) -> Int[Tensor, "rows"]:
    """The word w with P(words before w) <= u < P(words up to w): one random number a row, so rows do not share a stream."""
    shares = (log_probs.double() / sampling.temperature).softmax(dim=-1)
    if (sampling.top_k, sampling.top_p, sampling.min_p, sampling.typical_p) == (None,) * 4:
        return invert(shares, chances)
    shares, words = shares.sort(dim=-1, descending=True, stable=True)
    place = invert(kept(shares, sampling), chances)
    return words.gather(1, place[:, None]).squeeze(1)


def invert(shares: Float[Tensor, "rows vocabulary"], chances: Float[Tensor, "rows"]) -> Int[Tensor, "rows"]:
    """The first place where the sum of shares exceeds u times their total; some place where nothing may be drawn."""
    sums = shares.cumsum(dim=-1)
    places = torch.searchsorted(sums, chances.double()[:, None] * sums[:, -1:], right=True).squeeze(1)
    return places.clamp(max=shares.shape[1] - 1)


def kept(shares: Float[Tensor, "rows vocabulary"], sampling: Sampling) -> Float[Tensor, "rows best"]:
    """Of sorted shares the first `top_k`, and those outside of the nucleus of these set to 0; the best word always stays."""
    if sampling.top_k is not None:
        shares = shares[:, : sampling.top_k]
    if sampling.top_p is not None:
        before = shares.cumsum(dim=-1) - shares
        shares = shares.masked_fill(before >= sampling.top_p * shares.sum(dim=-1, keepdim=True), 0.0)
    if sampling.min_p is not None:
        shares = shares.masked_fill(shares < sampling.min_p * shares[:, :1], 0.0)
    return shares if sampling.typical_p is None else typical(shares, sampling.typical_p)


def typical(shares: Float[Tensor, "rows best"], mass: float) -> Float[Tensor, "rows best"]:
    """The words whose -log p is nearest to its mean, the entropy, until they are so probable together."""
    shares = shares / shares.sum(dim=-1, keepdim=True)
    information = -shares.log()
    entropy = (shares * information).nan_to_num(0.0).sum(dim=-1, keepdim=True)
    order = (information - entropy).abs().argsort(dim=-1, stable=True)
    sorted_shares = shares.gather(1, order)
    before = sorted_shares.cumsum(dim=-1) - sorted_shares
    return shares.masked_fill((before >= mass).gather(1, order.argsort(dim=-1)), 0.0)


def chances_of(sources: Sequence[Sequence[int]], count: int, longest: int, seed: int) -> Float[Tensor, "batch count longest"]:
    """Uniform numbers from [0, 1) that are a function of (seed, the source's tokens, which sample, which word): a sentence
    draws alike alone and in any batch, and its first samples do not depend on how many follow."""
    rows = [stream(seed, tokens, number, longest) for tokens in sources for number in range(count)]
    return torch.from_numpy(np.stack(rows)).view(len(sources), count, longest)


def stream(seed: int, tokens: Sequence[int], number: int, longest: int) -> Float[np.ndarray, "longest"]:
    text = hashlib.blake2b(np.asarray(tokens, np.int64).tobytes(), digest_size=8).digest()
    key = np.array([seed % 2**64, int.from_bytes(text, "little")], np.uint64)
    bits = np.random.Philox(key=key, counter=np.array([0, 0, 0, number], np.uint64)).random_raw(longest)
    chances: Float[np.ndarray, longest] = (bits >> np.uint64(64 - BITS)) / 2**BITS
    return chances
