"""From scores to weights. One class per selection; SELECTIONS names them.

Scores of hidden keys are the lowest that the dtype has; what a selection gives to hidden keys is set to 0 afterwards.
"""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.attention.sparse import entmax, sparsemax

Scores = Float[Tensor, "*rows source"]


class HardSample(NamedTuple):
    """What hard attention drew: all that its training needs to know."""

    log_prob: Float[Tensor, "batch target"]  # of the places drawn at each step, all heads together
    entropy: Float[Tensor, "batch target"]  # of what they were drawn from
    lasting: bool = False  # whether what a step drew is known to later steps


class Selected(NamedTuple):
    weights: Scores
    choice: HardSample | None = None


class Soft(nn.Module):
    """α = softmax(e / τ)"""

    hard: ClassVar[bool] = False  # whether exactly one key is picked
    draws: ClassVar[bool] = False  # whether training needs to know what was drawn

    def __init__(self, temperature: float = 1.0, softness: float = 0.5) -> None:
        super().__init__()
        self.temperature, self.softness = temperature, softness

    def tempered(self, scores: Scores) -> Scores:
        """e / τ, still finite where keys are hidden."""
        return scores if self.temperature == 1 else (scores / self.temperature).clamp(min=torch.finfo(scores.dtype).min)

    def forward(self, scores: Scores) -> Selected:
        return Selected(self.tempered(scores).softmax(dim=-1))


class Sparse(Soft):
    """α = sparsemax(e / τ)"""

    def forward(self, scores: Scores) -> Selected:
        return Selected(sparsemax(self.tempered(scores)))


class Entmax(Soft):
    """α = 1.5-entmax(e / τ)"""

    def forward(self, scores: Scores) -> Selected:
        return Selected(entmax(self.tempered(scores)))


class Gumbel(Soft):
    """One key: argmax e; in training argmax(e + g), whose gradient is that of softmax((e + g) / τ)  (Jang et al. 2017)."""

    hard = True

    def forward(self, scores: Scores) -> Selected:
        if not self.training:
            return Selected(best(scores))
        noisy = scores - torch.empty_like(scores).exponential_().log()
        soft = self.tempered(noisy).softmax(dim=-1)
        return Selected(best(noisy) + (soft - soft.detach()))


class Hard(Soft):
    """One key: argmax e; in training drawn from softmax(e / τ), which REINFORCE teaches (Xu et al. 2015, section 4.1).

    A share `softness` of the sentences (of the steps, where these are taken one by one) reads Σ α_j v_j instead, as Xu et al.
    do to have less variance.
    """

    hard = draws = True

    def forward(self, scores: Scores) -> Selected:
        if not self.training:
            return Selected(best(scores))
        log_probs = self.tempered(scores).log_softmax(dim=-1)
        soft = log_probs.exp()
        drawn = best(log_probs.detach() - torch.empty_like(scores).exponential_().log())
        log_prob = (drawn * log_probs).sum(dim=(1, 3))  # of [batch heads target source]
        entropy = -(soft * log_probs.masked_fill(soft == 0, 0.0)).sum(dim=(1, 3))  # 0 log 0 = 0, and so is its gradient
        softly = torch.rand(len(scores), 1, 1, 1, device=scores.device) < self.softness
        drew = ~softly.view(-1, 1)
        return Selected(torch.where(softly, soft, drawn), HardSample(log_prob * drew, entropy))


def best(scores: Scores) -> Scores:
    return functional.one_hot(scores.argmax(dim=-1), scores.shape[-1]).to(scores.dtype)


SELECTIONS: dict[str, type[Soft]] = {
    "soft": Soft,
    "sparsemax": Sparse,
    "entmax": Entmax,
    "hard": Hard,
    "gumbel": Gumbel,
}
