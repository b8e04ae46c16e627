"""What training minimises: the cross-entropy of the true target, summed over its tokens, and what else is asked for."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.data.batching import Batch
from regard.data.tokenizers import PAD
from regard.models import Model
from regard.models.interface import Copies, Steps
from regard.nn.attention import Choice
from regard.recipe import choose
from regard.training.penalties import PENALTIES, Evidence

FORGET = 0.1  # how fast the usual reward follows the last one (Xu et al. 2015, section 4.1)


class Examples(NamedTuple):
    """A batch on its device."""

    source: Int[Tensor, "batch source"]
    source_lengths: Int[Tensor, "batch"]
    target_input: Int[Tensor, "batch target"]
    target_output: Int[Tensor, "batch target"]
    copies: Copies | None = None  # where the decoder copies words
    links: Float[Tensor, "batch target source"] | None = None  # where alignments are given


def on_device(batch: Batch, device: torch.device) -> Examples:
    arrays = batch.source, batch.source_lengths, batch.target_input, batch.target_output, batch.copies, batch.links
    source, lengths, read, written, words, links = sent(arrays, device)
    copies = None if words is None else Copies(words, batch.copy_size)
    return Examples(source, lengths, read, written, copies, links)


def sent(arrays: Sequence[npt.NDArray[Any] | None], device: torch.device) -> list[Any]:
    """To a GPU on a stream of their own, so that they are there by the time that earlier steps are done."""
    tensors = [None if array is None else torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    if device.type != "cuda":
        return tensors
    now, aside = torch.cuda.current_stream(device), courier(device)
    with torch.cuda.stream(aside):
        tensors = [None if one is None else one.pin_memory().to(device, non_blocking=True) for one in tensors]
    now.wait_stream(aside)
    for one in tensors:
        if one is not None:
            one.record_stream(now)  # its memory is not the courier's again before they are done
    return tensors


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    (tensor,) = sent([array], device)
    return tensor  # type: ignore[no-any-return]


@functools.cache
def courier(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


class Objective(nn.Module):
    """The loss as a module, so that DistributedDataParallel can wrap it."""

    def __init__(
        self, model: Model, label_smoothing: float, scheduled_sampling: float = 0.0,
        penalties: Mapping[str, float] | None = None, entropy: float = 0.01,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model, self.label_smoothing, self.scheduled_sampling = model, label_smoothing, scheduled_sampling
        self.entropy = entropy
        self.penalties = [(choose(PENALTIES, name, "penalty"), rate) for name, rate in (penalties or {}).items()]

    def forward(self, examples: Examples) -> Float[Tensor, ""]:
        words = examples.target_input
        if self.scheduled_sampling and self.training:
            words = self.sample(examples)
        looks = bool(self.penalties)
        steps = self.model.decode(examples.source, examples.source_lengths, words, examples.copies, looks)
        loss = self.model.decoder.loss(steps, examples.target_output, self.label_smoothing)
        if steps.cost is not None:
            loss = loss + steps.cost * (examples.target_output != PAD).sum()
        if self.penalties:
            loss = loss + self.penalty(steps, examples)
        if steps.choice is not None:
            loss = loss + self.reinforce(steps, steps.choice, examples.target_output)
        return loss

    def penalty(self, steps: Steps, examples: Examples) -> Float[Tensor, ""]:
        assert steps.weights is not None
        place = torch.arange(examples.source.shape[1], device=examples.source.device)
        visible = place < examples.source_lengths[:, None]
        evidence = Evidence(steps.weights, examples.target_output != PAD, visible, examples.links)
        return torch.stack([rate * function(evidence) for function, rate in self.penalties]).sum()

    def reinforce(self, steps: Steps, choice: Choice, target: Int[Tensor, "batch target"]) -> Float[Tensor, ""]:
        """-Σ (r_i - b) log p(place_i) - λ H_i with the reward r_i = log p(y_i) and b its moving mean for this word: the
        gradient of what places that were drawn are worth (Williams 1992; Xu et al. 2015, eq. 11 to 13). Where a place
        matters to later words too, their rewards are its own."""
        decoder, written = self.model.decoder, target != PAD
        usual = decoder.usual_reward
        assert usual is not None
        words, reward = target.clamp(max=len(usual) - 1), decoder.log_probs(steps, target)
        advantage = (reward - usual[words]) * written
        advantage = advantage.flip(1).cumsum(1).flip(1) if choice.lasting else advantage
        if self.training:
            move(usual, words, reward, written)
        return -(advantage * choice.log_prob).sum() - self.entropy * (choice.entropy * written).sum()

    @torch.no_grad()
    def sample(self, examples: Examples) -> Int[Tensor, "batch target"]:
        """Scheduled sampling in two passes (Duckworth et al. 2019): the first predicts every word from the true ones,
        the second reads some of the predictions. One way for every decoder, and no loop over words."""
        logits = self.model(examples.source, examples.source_lengths, examples.target_input, examples.copies)
        own = torch.cat([examples.target_input[:, :1], logits.argmax(dim=-1)[:, :-1]], dim=1)
        chance = torch.rand(own.shape, device=own.device) < self.scheduled_sampling
        return torch.where(chance & (examples.target_input != PAD), own, examples.target_input)


@torch.no_grad()
def move(
    usual: Float[Tensor, "vocabulary"],
    words: Int[Tensor, "batch target"],
    reward: Float[Tensor, "batch target"],
    written: Bool[Tensor, "batch target"],
) -> None:
    """A moving mean a word: those that were written go a step towards their mean reward of now."""
    count = torch.zeros_like(usual).index_add_(0, words.flatten(), written.flatten().to(usual.dtype))
    total = torch.zeros_like(usual).index_add_(0, words.flatten(), (reward * written).flatten().to(usual.dtype))
    usual.lerp_(torch.where(count > 0, total / count.clamp(min=1), usual), FORGET)
