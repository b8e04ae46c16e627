"""Models that write a sequence, word by word: what is computed of a batch, and the loss in its parts."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from regard.data.batching import Batch
from regard.data.tokenizers import END, PAD, START
from regard.errors import UserError
from regard.models.interface import PLAIN, Decoder, Loss, LossOptions, Memory, Model, StepFunction, Steps
from regard.models.penalties import ACTIVATIONS, PENALTIES, ActivationPenalty, Evidence, Penalty, asks_attention
from regard.nn.transformer.experts import Experts

FORGET = 0.1  # how fast the usual reward follows the last one (Xu et al. 2015, section 4.1)
Words = Int[Tensor, "batch target"]
Part = Callable[[Steps, Batch], Float[Tensor, ""]]


class Generator(Model):
    """Encoder and decoder, or a decoder alone. The column `target` is what it writes: tokens, END, PAD ..."""

    writes = "target"
    pipeline_tag = "translation"
    validate_by = "bleu"
    decoder: Decoder

    @property
    def has_attention(self) -> bool:  # type: ignore[override]
        return self.decoder.has_attention

    @property
    def copies_words(self) -> bool:  # type: ignore[override]
        return self.decoder.copies_words

    @property
    def draws_attention(self) -> bool:
        """Whether hard attention draws where it looks, and is taught by what that earns."""
        return self.decoder.reward_baseline is not None

    @property
    def vocabulary(self) -> int:
        """Of the target."""
        return self.decoder.embed.num_embeddings

    def encode(self, batch: Batch) -> Memory:
        raise NotImplementedError

    def start(self, memory: Memory) -> tuple[StepFunction, Any]:
        """What a search needs: a step that reads this memory, and the State before the first word."""
        return self.decoder.stepper(memory), self.decoder.start(memory)

    def read_words(self, batch: Batch) -> Words:
        """What is read at each step when `target` is to be written."""
        return shifted(batch["target"].values)

    def teacher_forced(self, batch: Batch, words: Words, return_weights: bool = False) -> Steps:
        """All steps that read these words, up to the layer under the logits; `return_weights` asks for attention weights."""
        raise NotImplementedError

    def teacher_forced_each(self, batch: Batch, words: Int[Tensor, "rows target"], count: int) -> Steps:
        """`count` targets of each source, one after the other."""
        raise NotImplementedError

    def logits(self, steps: Steps) -> Float[Tensor, "batch target vocabulary"]:
        return self.decoder.logits(steps)

    def forward(self, batch: Batch, words: Words) -> Float[Tensor, "batch target vocabulary"]:
        return self.logits(self.teacher_forced(batch, words))

    def parts(self, options: LossOptions) -> dict[str, Part]:
        """`loss` is the cross-entropy (with label smoothing, where there is any), the others stand beside it."""
        parts: dict[str, Part] = {"loss": functools.partial(self.cross_entropy, options.label_smoothing)}
        if any(map(asks_attention, options.penalties)) and not self.has_attention:
            raise UserError("training.penalties ask where the model looked, and this one has no attention to tell")
        if any(isinstance(module, Experts) for module in self.modules()):
            parts["experts"] = self.experts
        for name, rate in options.penalties.items():
            if asks_attention(name):
                parts[name] = functools.partial(self.penalty, PENALTIES[name], rate)
            else:
                parts[name] = functools.partial(self.activation_penalty, ACTIVATIONS[name], rate)
        if self.draws_attention:
            parts["reinforce"] = functools.partial(self.reinforce, options.entropy)
        return parts

    def part_names(self, options: LossOptions) -> tuple[str, ...]:
        return tuple(self.parts(options))

    def loss(self, batch: Batch, options: LossOptions = PLAIN) -> Loss:
        target: Tensor = batch["target"].values
        words = self.read_words(batch)
        if options.scheduled_sampling and self.training:
            words = self.sample(batch, words, options.scheduled_sampling)
        steps = self.teacher_forced(batch, words, any(map(asks_attention, options.penalties)))
        parts = {name: part(steps, batch) for name, part in self.parts(options).items()}
        told = {name: part.detach() for name, part in parts.items()}
        return Loss(functools.reduce(torch.add, parts.values()), told, (target != PAD).sum())

    def cross_entropy(self, label_smoothing: float, steps: Steps, batch: Batch) -> Float[Tensor, ""]:
        return self.decoder.loss(steps, batch["target"].values, label_smoothing)

    def experts(self, steps: Steps, batch: Batch) -> Float[Tensor, ""]:
        """What using them unevenly costs, for each token of the target."""
        tokens: Tensor = (batch["target"].values != PAD).sum()
        return tokens * 0.0 if steps.cost is None else steps.cost * tokens

    def penalty(self, function: Penalty, rate: float, steps: Steps, batch: Batch) -> Float[Tensor, ""]:
        assert steps.weights is not None
        assert steps.visible is not None
        target: Tensor = batch["target"].values
        given, places = batch.get("links"), steps.visible.shape[1]
        # a memory may go on after the last word, where nothing is linked
        links = None if given is None else functional.pad(given.values, (0, places - given.values.shape[2]))
        return rate * function(Evidence(steps.weights, target != PAD, steps.visible, links))

    def activation_penalty(self, function: ActivationPenalty, rate: float, steps: Steps, batch: Batch) -> Float[Tensor, ""]:
        return rate * function(steps.outputs, batch["target"].values != PAD)

    def reinforce(self, entropy: float, steps: Steps, batch: Batch) -> Float[Tensor, ""]:
        """-Σ (r_i - b) log p(place_i) - λ H_i with the reward r_i = log p(y_i) and b its moving mean for this word: the
        gradient of what places that were drawn are worth (Williams 1992; Xu et al. 2015, eq. 11 to 13). Where a place
        matters to later words too, their rewards are its own."""
        target: Tensor = batch["target"].values
        choice = steps.choice
        usual, written = self.decoder.reward_baseline, target != PAD
        if choice is None:  # nothing is drawn in evaluation mode
            return written.sum() * 0.0
        assert usual is not None
        words, reward = target.clamp(max=len(usual) - 1), self.decoder.log_probs(steps, target)
        advantage = (reward - usual[words]) * written
        advantage = advantage.flip(1).cumsum(1).flip(1) if choice.lasting else advantage
        if self.training:
            move(usual, words, reward, written)
        return -(advantage * choice.log_prob).sum() - entropy * (choice.entropy * written).sum()

    @torch.no_grad()
    def sample(self, batch: Batch, words: Words, chance: float) -> Words:
        """Scheduled sampling in two passes (Duckworth et al. 2019): the first predicts every word from the true ones,
        the second reads some of the predictions. One way for every decoder, and no loop over words."""
        own = torch.cat([words[:, :1], self(batch, words).argmax(dim=-1)[:, :-1]], dim=1)
        drawn = torch.rand(own.shape, device=own.device) < chance
        return torch.where(drawn & (words != PAD), own, words)


def shifted(output: Words) -> Words:
    """What a decoder reads when it should say `output`: START, then all but the last; END is never read. A row that should
    say nothing (batching.pad_to_multiple) reads nothing: experts and moments do not count it."""
    earlier = output[:, :-1]
    read = functional.pad(torch.where(earlier == END, PAD, earlier), (1, 0), value=START)
    return torch.where(output[:, :1] == PAD, PAD, read)


@torch.no_grad()
def move(
    usual: Float[Tensor, "vocabulary"],
    words: Words,
    reward: Float[Tensor, "batch target"],
    written: Bool[Tensor, "batch target"],
) -> None:
    """A moving mean a word: those that were written go a step towards their mean reward of now."""
    count = torch.zeros_like(usual).index_add_(0, words.flatten(), written.flatten().to(usual.dtype))
    total = torch.zeros_like(usual).index_add_(0, words.flatten(), (reward * written).flatten().to(usual.dtype))
    usual.lerp_(torch.where(count > 0, total / count.clamp(min=1), usual), FORGET)
