"""What training minimises: the cross-entropy of the true target, summed over its tokens, and what else is asked for."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.data.batching import Batch
from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.models import Model
from regard.models.interface import Copies, Steps
from regard.nn.transformer.experts import Experts
from regard.recipe import choose
from regard.training.penalties import PENALTIES, Evidence, Penalty

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


Part = Callable[[Steps, Examples], Float[Tensor, ""]]


class Loss(NamedTuple):
    """Sums over a batch: what is differentiated, and what it is made of, in the order of the objective's `names`."""

    total: Float[Tensor, ""]
    parts: Float[Tensor, "parts"]  # without gradients


def in_a_row(loss: Loss) -> Float[Tensor, "losses"]:
    """The total and its parts."""
    return torch.cat([loss.total[None], loss.parts])


class Objective(nn.Module):
    """The loss as a module, so that DistributedDataParallel can wrap it. Its parts by name: `loss` is the cross-entropy (with
    label smoothing, where there is any), the others stand beside it."""

    def __init__(
        self, model: Model, label_smoothing: float, scheduled_sampling: float = 0.0,
        penalties: Mapping[str, float] | None = None, entropy: float = 0.01,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model, self.label_smoothing, self.scheduled_sampling = model, label_smoothing, scheduled_sampling
        self.entropy, self.looks = entropy, bool(penalties)
        if self.looks and not model.decoder.has_attention:
            raise UserError("training.penalties ask where the model looked, and this one has no attention to tell")
        self.parts: dict[str, Part] = {"loss": self.cross_entropy}
        if any(isinstance(module, Experts) for module in model.modules()):
            self.parts["experts"] = self.experts
        for name, rate in (penalties or {}).items():
            self.parts[name] = functools.partial(self.penalty, choose(PENALTIES, name, "penalty"), rate)
        if model.decoder.usual_reward is not None:
            self.parts["reinforce"] = self.reinforce

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.parts)

    def forward(self, examples: Examples) -> Loss:
        words = examples.target_input
        if self.scheduled_sampling and self.training:
            words = self.sample(examples)
        steps = self.model.decode(examples.source, examples.source_lengths, words, examples.copies, self.looks)
        parts = [part(steps, examples) for part in self.parts.values()]
        return Loss(functools.reduce(torch.add, parts), torch.stack(parts).detach())

    def cross_entropy(self, steps: Steps, examples: Examples) -> Float[Tensor, ""]:
        return self.model.decoder.loss(steps, examples.target_output, self.label_smoothing)

    def experts(self, steps: Steps, examples: Examples) -> Float[Tensor, ""]:
        """What using them unevenly costs, for each token of the target."""
        tokens = (examples.target_output != PAD).sum()
        return tokens * 0.0 if steps.cost is None else steps.cost * tokens

    def penalty(self, function: Penalty, rate: float, steps: Steps, examples: Examples) -> Float[Tensor, ""]:
        assert steps.weights is not None
        assert steps.visible is not None
        links, places = examples.links, steps.visible.shape[1]
        if links is not None:  # a memory may go on after the last word, where nothing is linked
            links = functional.pad(links, (0, places - links.shape[2]))
        return rate * function(Evidence(steps.weights, examples.target_output != PAD, steps.visible, links))

    def reinforce(self, steps: Steps, examples: Examples) -> Float[Tensor, ""]:
        """-Σ (r_i - b) log p(place_i) - λ H_i with the reward r_i = log p(y_i) and b its moving mean for this word: the
        gradient of what places that were drawn are worth (Williams 1992; Xu et al. 2015, eq. 11 to 13). Where a place
        matters to later words too, their rewards are its own."""
        decoder, target, choice = self.model.decoder, examples.target_output, steps.choice
        usual, written = decoder.usual_reward, target != PAD
        if choice is None:  # nothing is drawn in evaluation mode
            return written.sum() * 0.0
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
