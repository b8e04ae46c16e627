"""Training for an expected sentence score: what the model's own outputs are worth, beside the likelihood of the true one."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from regard.data.tokenizers import PAD
from regard.errors import UserError
from regard.models import Model, SequenceToSequence
from regard.models.interface import Steps
from regard.nn.linear import at_least_float32
from regard.nn.state import repeat_rows, select_rows
from regard.recipe import Risk, choose
from regard.training.objective import Examples, Loss, Objective

LOGITS = 1 << 27  # that exist at a time


class Candidates(NamedTuple):
    """Outputs that the model proposes, those of a sentence next to each other, and what each is worth."""

    target_input: Int[Tensor, "rows target"]
    target_output: Int[Tensor, "rows target"]  # with END, but for those that were cut off at their limit
    rewards: Float[Tensor, "batch count"]
    real: Bool[Tensor, "batch count"]  # a list that is shorter than the others is filled up


Propose = Callable[[Examples, int], Candidates]  # a batch and a seed
Judge = Callable[[Float[Tensor, "batch count"], Candidates, Risk], Float[Tensor, ""]]


def refuse_hard_attention(model: Model) -> None:
    if model.decoder.usual_reward is not None:
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
    def model(self) -> Model:
        return self.likelihood.model

    @property
    def names(self) -> tuple[str, ...]:
        return *self.likelihood.names, "risk"

    def forward(self, examples: Examples) -> Loss:
        candidates, share = self.outputs(examples), self.risk.likelihood
        loss = self.judge(log_likelihood(self.model, examples, candidates), candidates, self.risk)
        likelihood = self.truth(examples)
        cross_entropy, others = likelihood.parts[:1], likelihood.parts[1:]  # of which the first is told as it is
        parts = torch.cat([cross_entropy, share * others, loss.detach()[None]])
        return Loss(loss + share * likelihood.total if share else loss, parts)

    def truth(self, examples: Examples) -> Loss:
        """The likelihood of what is true; where it is only told, it costs no random numbers."""
        if self.risk.likelihood:
            return self.likelihood(examples)  # type: ignore[no-any-return]
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return self.likelihood(examples)  # type: ignore[no-any-return]

    def outputs(self, examples: Examples) -> Candidates:
        """What the model writes when it is in use, that is without dropout, drawn by the seed of this step."""
        training = self.model.training
        self.model.eval()
        candidates = self.propose(examples, torch.initial_seed())
        self.model.train(training)
        return candidates


def log_likelihood(model: Model, examples: Examples, candidates: Candidates) -> Float[Tensor, "batch count"]:
    """log p(y | x) of every candidate, with gradients."""
    steps = decode(model, examples, candidates.target_input, candidates.rewards.shape[1])
    rows, length = candidates.target_output.shape
    size = max(1, LOGITS // (length * model.decoder.embed.num_embeddings))
    parts = torch.split(torch.arange(rows, device=candidates.target_output.device), size)
    totals = [checkpoint(total_log_prob, model, steps, candidates.target_output, part, use_reentrant=False) for part in parts]
    return torch.cat(totals).view(candidates.rewards.shape)


def decode(model: Model, examples: Examples, words: Int[Tensor, "rows target"], count: int) -> Steps:
    """Teacher forcing of `count` targets a source, which an encoder reads once for all of them."""
    source, lengths, copies = examples.source, examples.source_lengths, examples.copies
    if isinstance(model, SequenceToSequence):
        memory = model.read(source, lengths, copies)._replace(cost=None)
        steps: Steps = model.decoder(words, model.decoder.prepare(repeat_rows(memory, count)))
    else:
        steps = model.decode(*repeat_rows((source, lengths), count), words)
    return steps._replace(weights=None, cost=None)  # what experts cost is counted with the likelihood


def total_log_prob(
    model: Model, steps: Steps, target: Int[Tensor, "rows target"], part: Int[Tensor, "part"]
) -> Float[Tensor, "part"]:
    """Σ_t log p(y_t) of some rows."""
    words = target[part]
    logits: Tensor = model.decoder.logits(select_rows(steps, part))
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


RISKS: dict[str, Judge] = {"reinforce": reinforce, "minimum_risk": minimum_risk}
