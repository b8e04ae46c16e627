"""Words that stood in a text a moment ago are likelier to come again (Grave et al. 2017, 'Improving neural language models with
a continuous cache'): attention to the states of the words that were read, whose values are the words that followed them."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.nn.linear import at_least_float32

PIECE = 256  # tokens of a lane that look back at once


class Recent(NamedTuple):
    """How far back, how sharply, and how much of the probability it has; nothing of it is learned by gradients."""

    words: int = 2000
    sharpness: float = 0.3  # θ
    share: float = 0.1  # λ


class Past(NamedTuple):
    """Of each lane: the states that were there, and the words that followed them."""

    states: Float[Tensor, "lanes past size"]
    words: Int[Tensor, "lanes past"]

    @classmethod
    def nothing(cls, like: Float[Tensor, "lanes time size"], words: Int[Tensor, "lanes time"]) -> "Past":
        return cls(like[:, :0], words[:, :0])

    def and_then(self, states: Float[Tensor, "lanes time size"], words: Int[Tensor, "lanes time"]) -> "Past":
        return Past(torch.cat([self.states, states], dim=1), torch.cat([self.words, words], dim=1))

    def last(self, count: int) -> "Past":
        return Past(self.states[:, -count:], self.words[:, -count:])


def seen(time: int, past: int, count: int, device: torch.device) -> Bool[Tensor, "time all"]:
    """Which of `past` and of `time` new words each of the new ones may look back at: at most `count`, all before it."""
    here, there = torch.arange(past, past + time, device=device)[:, None], torch.arange(past + time, device=device)
    return (there < here) & (there >= here - count)


def with_recent(
    log_probs: Float[Tensor, "lanes time"],
    states: Float[Tensor, "lanes time size"],
    target: Int[Tensor, "lanes time"],
    past: Past,
    recent: Recent,
) -> tuple[Float[Tensor, "lanes time"], Past]:
    """log ((1 - λ) p(y_t) + λ Σ_i α_ti [y_i = y_t]), α_ti ∝ e^(θ h_t·h_i) over the words i before t."""
    both = past.and_then(at_least_float32(states), target)
    visible = seen(target.shape[1], past.words.shape[1], recent.words, target.device)
    scores = recent.sharpness * both.states[:, past.words.shape[1] :] @ both.states.transpose(1, 2)
    looks = scores.masked_fill(~visible, -torch.inf).softmax(dim=-1).nan_to_num(0.0)  # the first word has nothing before it
    again = (looks * (both.words[:, None] == target[..., None])).sum(dim=-1)
    share = recent.share * visible.any(dim=-1)
    return ((1 - share) * log_probs.exp() + share * again).log(), both.last(recent.words)
