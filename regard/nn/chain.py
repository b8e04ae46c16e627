"""A linear-chain conditional random field: labels that follow each other are chosen together (Lafferty et al. 2001)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

Emissions = Float[Tensor, "batch time labels"]
Visible = Bool[Tensor, "batch time"]
Rows = Float[Tensor, "batch"]


class Best(NamedTuple):
    """The likeliest labels of each row, and their score s(y)."""

    labels: Int[Tensor, "batch time"]
    scores: Rows


class LinearChain(nn.Module):
    """p(y) = e^s(y) / Z, where s(y) = b[y_1] + Σ_t e_t[y_t] + Σ_t A[y_{t-1}, y_t] + f[y_T] and e_t are the emissions.

    A row without visible positions has s = log Z = 0.
    """

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(labels, labels))  # A[from, to]
        self.begins, self.finishes = nn.Parameter(torch.zeros(labels)), nn.Parameter(torch.zeros(labels))  # b, f

    def score(self, emissions: Emissions, labels: Int[Tensor, "batch time"], visible: Visible) -> Rows:
        """s(y); what stands in hidden positions counts nothing."""
        labels = labels.masked_fill(~visible, 0)
        emitted = emissions.gather(2, labels[..., None])[..., 0].masked_fill(~visible, 0.0).sum(dim=1)
        moved = self.transitions[labels[:, :-1], labels[:, 1:]].masked_fill(~visible[:, 1:], 0.0).sum(dim=1)
        last = labels.gather(1, (visible.sum(dim=1, keepdim=True) - 1).clamp(min=0))[:, 0]
        ends = (self.begins[labels[:, 0]] + self.finishes[last]).masked_fill(~visible[:, 0], 0.0)
        return emitted + moved + ends

    def log_partition(self, emissions: Emissions, visible: Visible) -> Rows:
        """log Z = log Σ_y e^s(y), by the forward algorithm."""
        last = self.forwards(emissions, visible)[:, -1]
        return (last + self.finishes).logsumexp(dim=-1).masked_fill(~visible[:, 0], 0.0)

    def forwards(self, emissions: Emissions, visible: Visible) -> Emissions:
        """α_t[j] = log Σ_i e^(α_{t-1}[i] + A[i, j]) + e_t[j]; after a row's end it stays as it was."""
        alphas = [self.begins + emissions[:, 0]]
        for time in range(1, emissions.shape[1]):
            moved = (alphas[-1][:, :, None] + self.transitions).logsumexp(dim=1) + emissions[:, time]
            alphas.append(torch.where(visible[:, time, None], moved, alphas[-1]))
        return torch.stack(alphas, dim=1)

    def backwards(self, emissions: Emissions, visible: Visible) -> Emissions:
        """β_t[i] = log Σ_j e^(A[i, j] + e_{t+1}[j] + β_{t+1}[j]); f at a row's end."""
        finishes = self.finishes.expand(len(emissions), -1)
        betas = [finishes]
        for time in range(emissions.shape[1] - 1, 0, -1):
            moved = (self.transitions + (emissions[:, time] + betas[-1])[:, None]).logsumexp(dim=2)
            betas.append(torch.where(visible[:, time, None], moved, finishes))
        return torch.stack(betas[::-1], dim=1)

    def marginals(self, emissions: Emissions, visible: Visible) -> Emissions:
        """p(y_t = j) = e^(α_t[j] + β_t[j]) / Z"""
        return (self.forwards(emissions, visible) + self.backwards(emissions, visible)).softmax(dim=-1)

    def best(self, emissions: Emissions, visible: Visible) -> Best:
        """argmax_y s(y), by the algorithm of Viterbi."""
        scores, stay, back = self.begins + emissions[:, 0], torch.arange(emissions.shape[2], device=emissions.device), []
        for time in range(1, emissions.shape[1]):
            moved = (scores[:, :, None] + self.transitions).max(dim=1)
            there = visible[:, time, None]
            scores = torch.where(there, moved.values + emissions[:, time], scores)
            back.append(torch.where(there, moved.indices, stay))
        found = (scores + self.finishes).max(dim=-1)
        labels = [found.indices]
        for before in reversed(back):
            labels.append(before.gather(1, labels[-1][:, None])[:, 0])
        return Best(torch.stack(labels[::-1], dim=1), found.values.masked_fill(~visible[:, 0], 0.0))
