"""Copying: words of the source may be written as they stand, known or not."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.cross_entropy import linear_log_sums, mean_logits
from regard.nn.kernels.layers import entropy
from regard.nn.linear import Linear, at_least_float32

NOTHING = 0  # the word of positions that nobody copies: padding and the end mark
IMPOSSIBLE = float("-inf")


class Copying(NamedTuple):
    """How fit each source position is to be copied at each step."""

    scores: Float[Tensor, "batch target source"]  # the lowest that the dtype has where nothing is visible
    gate: Float[Tensor, "batch target"] | None  # log-odds of generating against copying; None: scores compete with words
    words: Int[Tensor, "batch source"]  # what would be written, in the extended vocabulary
    size: int  # of the extended vocabulary


class Copy(nn.Module):
    """e_ij = tanh(W h_j) · o_i  (Gu et al. 2016, eq. 8): in one softmax with the words (Jia & Liang 2016)."""

    def __init__(self, output_size: int, memory_size: int) -> None:
        super().__init__()
        self.project_key = Linear(memory_size, output_size, bias=False)

    def prepare(self, states: Float[Tensor, "batch source memory"]) -> Float[Tensor, "batch source output"]:
        """The part of the score that is the same at every step."""
        return torch.tanh(self.project_key(states))

    def forward(
        self,
        outputs: Float[Tensor, "batch target output"],
        keys: Float[Tensor, "batch source output"],
        visible: Bool[Tensor, "batch source"],
        words: Int[Tensor, "batch source"],
        size: int,
    ) -> Copying:
        words = words.masked_fill(~visible, NOTHING)
        scores = outputs @ keys.transpose(1, 2)
        scores = scores.masked_fill((words == NOTHING)[:, None], torch.finfo(scores.dtype).min)
        return Copying(scores, self.gate(outputs, words), words, size)

    def gate(self, outputs: Float[Tensor, "batch target output"], words: Int[Tensor, "batch source"]) -> Tensor | None:
        return None


class GatedCopy(Copy):
    """A gate g = σ(w · o + b) that chooses between two softmaxes (See et al. 2017, eqs. 8 and 9)."""

    def __init__(self, output_size: int, memory_size: int) -> None:
        super().__init__(output_size, memory_size)
        self.project_gate = Linear(output_size, 1)

    def gate(self, outputs: Float[Tensor, "batch target output"], words: Int[Tensor, "batch source"]) -> Tensor:
        odds: Tensor = self.project_gate(outputs).squeeze(-1)
        nothing = (words == NOTHING).all(dim=1)
        return odds.masked_fill(nothing[:, None], float("inf"))  # where nothing can be copied, everything is generated


def extended_logits(
    logits: Float[Tensor, "batch target vocabulary"], copying: Copying
) -> Float[Tensor, "batch target extended"]:
    """log p over the extended vocabulary but for a constant of each step; -inf for words that a sentence can neither
    generate nor copy."""
    logits, scores = at_least_float32(logits), at_least_float32(copying.scores)
    if copying.gate is not None:
        gate = at_least_float32(copying.gate)[..., None]
        logits = functional.logsigmoid(gate) + logits.log_softmax(dim=-1)
        scores = functional.logsigmoid(-gate) + scores.log_softmax(dim=-1)
    sums, places = by_word(scores, copying.words, copying.size)
    room = copying.size + 1 - logits.shape[-1]  # one place more, for what is not to be written
    extended = functional.pad(logits, (0, room), value=IMPOSSIBLE)
    both = torch.logaddexp(extended.gather(2, places), sums)
    return extended.scatter(2, places, both)[..., :-1]


def by_word(
    scores: Float[Tensor, "batch target source"], words: Int[Tensor, "batch source"], size: int
) -> tuple[Float[Tensor, "batch target source"], Int[Tensor, "batch target source"]]:
    """log Σ_{k: x_k = x_j} e^{e_k} where a word first stands, and the place of that word; elsewhere the place is `size`.

    The sums are products, whose order never varies, and in float64, which holds e^-700: no word is lost that is less
    likely than the best.
    """
    same = words[:, :, None] == words[:, None]
    repeated = same.triu(diagonal=1).any(dim=1)
    best = scores.detach().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    total = (scores - best).double().exp() @ same.double()
    nothing = (total == 0) | repeated[:, None]
    sums = total.masked_fill(nothing, 1.0).log().to(scores.dtype) + best
    return sums, words[:, None].expand_as(sums).masked_fill(nothing, size)


def log_shares(log_sum: Tensor, copy_sum: Tensor, gate: Tensor | None) -> tuple[Tensor, Tensor]:
    """What is added to logits u and to scores e to make them logarithms of parts of p.

    added: -log(Σ e^u + Σ e^e) for both;  gated: log g - log Σ e^u and log(1 - g) - log Σ e^e.
    """
    if gate is None:
        both = -torch.logaddexp(log_sum, copy_sum)
        return both, both
    return functional.logsigmoid(gate) - log_sum, functional.logsigmoid(-gate) - copy_sum


def copy_weights(logits: Float[Tensor, "batch target vocabulary"], copying: Copying) -> Float[Tensor, "batch target places"]:
    """p(copy x_j) of each source position j, and last p(generate): together 1."""
    logits, scores = at_least_float32(logits), at_least_float32(copying.scores)
    log_sums = logits.logsumexp(dim=-1)
    gate = None if copying.gate is None else at_least_float32(copying.gate)
    generate, copy = log_shares(log_sums, scores.logsumexp(dim=-1), gate)
    return torch.cat([scores + copy[..., None], (log_sums + generate)[..., None]], dim=-1).exp()


def copying_loss(
    inputs: Float[Tensor, "batch target size"],
    layer: nn.Linear,
    target: Int[Tensor, "batch target"],
    copying: Copying,
    ignore: int,
    label_smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Σ -log p(target) over all positions but the ignored ones; all logits never exist together.

    p(w) = (what generates w) + Σ_{j: x_j = w} (what copies x_j). Label smoothing asks for all words alike to be generated,
    ε/V Σ_w log p(generate w), whose mean logit is one product. As in `linear_cross_entropy` a CPU computes nothing for the
    ignored positions, and a GPU lets them count 0: it never waits for their number, so its steps can be captured.
    """
    kept = ... if entropy.applies(inputs) else target != ignore
    rows, truth = inputs[kept].flatten(0, -2), target[kept].flatten()
    others = (copying.words[:, None] != target[..., None])[kept].flatten(0, -2)
    scores = at_least_float32(copying.scores[kept].flatten(0, -2))
    log_sum, own = linear_log_sums(rows, layer, truth)
    lowest = torch.finfo(scores.dtype).min  # not -inf, whose gradient is NaN
    copied = scores.masked_fill(others, lowest).logsumexp(dim=1)
    gate = None if copying.gate is None else at_least_float32(copying.gate[kept].flatten())
    generate, copy = log_shares(log_sum, scores.logsumexp(dim=1), gate)
    generated = own.masked_fill(truth >= layer.out_features, lowest)
    ignored = truth == ignore
    loss = -(1 - label_smoothing) * torch.logaddexp(generated + generate, copied + copy).masked_fill(ignored, 0.0).sum()
    if not label_smoothing:
        return loss
    return loss - label_smoothing * (mean_logits(rows, layer) + generate).masked_fill(ignored, 0.0).sum()


COPIES: dict[str, type[Copy]] = {"added": Copy, "gated": GatedCopy}
