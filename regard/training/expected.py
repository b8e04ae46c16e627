"""Training for an expected sentence score: what the model's own outputs are worth, beside the likelihood of the true one."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.data.batching import Batch
from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.models import Generator
from regard.models.interface import Loss, Model, Steps
from regard.nn.linear import at_least_float32
from regard.nn.state import select_rows
from regard.recipe import Risk, choose
from regard.tables import TABLES
from regard.training.objective import Objective

LOGITS = 1 << 27  # that exist at a time


class Candidates(NamedTuple):
    """Outputs that the model proposes, those of a sentence next to each other, and what each is worth."""

    target_input: Int[Tensor, "rows target"]
    target_output: Int[Tensor, "rows target"]  # with END, but for those that were cut off at their limit
    rewards: Float[Tensor, "batch count"]
    real: Bool[Tensor, "batch count"]  # a list that is shorter than the others is filled up


Propose = Callable[[Batch, int], Candidates]  # a batch and a seed
Judge = Callable[[Float[Tensor, "batch count"], Candidates, Risk], Float[Tensor, ""]]


def refuse_hard_attention(model: Model) -> None:
    if not isinstance(model, Generator):
        raise UserError("training.risk is for models that write a sequence, and this one does not")
    if model.draws_attention:
        raise UserError("training.risk does not go with hard attention, whose own draws would need their share of the reward")


class ExpectedReward(nn.Module):
    """L = α L_ML + L_RL  (Wu et al. 2016, eq. 9), each a sum over sentences, with rewards from 0 to 1. The loop divides both by
    the number of true tokens, as it does without rewards."""

    def __init__(self, likelihood: Objective, risk: Risk, propose: Propose | None) -> None:
        super().__init__()
        assert propose is not None, "whoever asks for an expected reward says where outputs and rewards come from"
        self.likelihood, self.risk, self.propose = likelihood, risk, propose
        self.judge = choose(RISKS, risk.objective, "objective")
        refuse_hard_attention(self.model)

    @property
    def model(self) -> Generator:
        return self.likelihood.model  # type: ignore[return-value]

    @property
    def names(self) -> tuple[str, ...]:
        return *self.likelihood.names, "risk"

    def forward(self, batch: Batch) -> Loss:
        candidates, share = self.outputs(batch), self.risk.likelihood
        loss = self.judge(log_likelihood(self.model, batch, candidates), candidates, self.risk)
        likelihood = self.truth(batch)
        cross_entropy, *others = likelihood.parts  # of which the first is told as it is
        parts = {cross_entropy: likelihood.parts[cross_entropy], **{name: share * likelihood.parts[name] for name in others}}
        total = loss + share * likelihood.total if share else loss
        return Loss(total, {**parts, "risk": loss.detach()}, likelihood.number)

    def truth(self, batch: Batch) -> Loss:
        """The likelihood of what is true; where it is only told, it costs no random numbers."""
        if self.risk.likelihood:
            return self.likelihood(batch)  # type: ignore[no-any-return]
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return self.likelihood(batch)  # type: ignore[no-any-return]

    def outputs(self, batch: Batch) -> Candidates:
        """What the model writes in evaluation mode, that is without dropout, drawn by the seed of this step."""
        training = self.model.training
        self.model.eval()
        candidates = self.propose(batch, torch.initial_seed())
        self.model.train(training)
        return candidates


def log_likelihood(model: Generator, batch: Batch, candidates: Candidates) -> Float[Tensor, "batch count"]:
    """log p(y | x) of every candidate, with gradients."""
    steps = model.teacher_forced_each(batch, candidates.target_input, candidates.rewards.shape[1])
    steps = steps._replace(weights=None, cost=None)  # what experts cost is counted with the likelihood
    rows, length = candidates.target_output.shape
    size = max(1, LOGITS // (length * model.vocabulary))
    parts = torch.split(torch.arange(rows, device=candidates.target_output.device), size)
    totals = [checkpoint(total_log_prob, model, steps, candidates.target_output, part, use_reentrant=False) for part in parts]
    return torch.cat(totals).view(candidates.rewards.shape)


def total_log_prob(
    model: Generator, steps: Steps, target: Int[Tensor, "rows target"], part: Int[Tensor, "part"]
) -> Float[Tensor, "part"]:
    """Σ_t log p(y_t) of some rows."""
    words = target[part]
    logits = model.logits(select_rows(steps, part))
    each = at_least_float32(logits).log_softmax(dim=-1).gather(2, words[..., None]).squeeze(-1)
    return each.masked_fill(words == PAD, 0.0).sum(dim=1)


def reinforce(log_probs: Float[Tensor, "batch count"], candidates: Candidates, risk: Risk) -> Float[Tensor, ""]:
    """-1/n Σ_j (r_j - b_j) log p(y_j), the baseline b_j being the mean reward of the other samples: its gradient is that of
    -E[r] in expectation (Williams 1992; Ranzato et al. 2016)."""
    rewards, count = candidates.rewards, candidates.rewards.shape[1]
    baseline = (rewards.sum(dim=1, keepdim=True) - rewards) / (count - 1)
    return -((rewards - baseline) * log_probs).mean(dim=1).sum()


def minimum_risk(log_probs: Float[Tensor, "batch count"], candidates: Candidates, risk: Risk) -> Float[Tensor, ""]:
    """Σ_y q(y) (1 - r(y)) over distinct outputs, with q(y) = p(y)^a / Σ p^a  (Shen et al. 2016, eqs. 11 and 12)."""
    shares = (risk.sharpness * log_probs).masked_fill(~candidates.real, float("-inf")).softmax(dim=1)
    return (shares * (1 - candidates.rewards)).sum()


class Following(NamedTuple):
    """An entry of RISKS: an objective, and which candidates it may follow."""

    judge: Judge
    samples: bool = False  # as they were drawn, some of them twice; else distinct outputs, however they were found

    def __call__(self, log_probs: Float[Tensor, "batch count"], candidates: Candidates, risk: Risk) -> Float[Tensor, ""]:
        return self.judge(log_probs, candidates, risk)


RISKS: dict[str, Following] = {"reinforce": Following(reinforce, samples=True), "minimum_risk": Following(minimum_risk)}
TABLES["objective"] = lambda: RISKS
