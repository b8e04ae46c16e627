"""Mixture of experts (Shazeer et al. 2017): many feed-forward networks, of which each position uses few."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.errors import UserError
from regard.nn.kernels.layers.grouped import Groups, products
from regard.nn.transformer.feedforward import FEEDFORWARDS, States, SublayerOutput

SMALLEST = 1e-4  # standard deviation of the noise, which is divided by
TRIES = 4  # an expert wanted, so many are asked before a row passes by
Scores = Float[Tensor, "rows number"]


class Scored(NamedTuple):
    """H(x) = x W_g + N(0, 1) σ(x), and its two parts; without noise both scores are the same and there is no σ."""

    noisy: Scores
    clean: Scores
    deviation: Scores | None


class Routing(NamedTuple):
    """The experts of each row, and which of them it really gets."""

    experts: Int[Tensor, "rows chosen"]
    served: Bool[Tensor, "rows chosen"]


class Use(NamedTuple):
    """How much each expert is used: Σ_x G(x)_e and Σ_x P(x, e)  (eq. 6 and 10). Sums: those of several steps add up."""

    importance: Float[Tensor, "number"]
    load: Float[Tensor, "number"]


class Mixed(NamedTuple):
    """The mixed outputs; in training also how much each expert was used."""

    states: States
    use: Use | None


class Gate(nn.Module):
    """H(x) = x W_g + N(0, 1) softplus(x W_noise)  (eq. 4)."""

    def __init__(self, size: int, number: int, noise: bool) -> None:
        super().__init__()
        self.choose = nn.Linear(size, number, bias=False)  # torch's: training rounds the weights of our Linear only
        self.noise = nn.Linear(size, number, bias=False) if noise else None
        nn.init.normal_(self.choose.weight, std=0.01)  # the paper's 0 is balanced too, but without noise leaves the choice open
        if self.noise is not None:
            nn.init.zeros_(self.noise.weight)

    def forward(self, rows: Float[Tensor, "rows size"]) -> Scored:
        clean = self.project(rows, self.choose)
        if self.noise is None or not self.training:
            return Scored(clean, clean, None)
        deviation = functional.softplus(self.project(rows, self.noise)).clamp_min(SMALLEST)
        return Scored(clean + torch.randn_like(clean) * deviation, clean, deviation)

    def project(self, rows: Float[Tensor, "rows size"], layer: nn.Linear) -> Scores:
        """Not in autocast's dtype: rounding would choose other experts. In evaluation mode in float64: what else is in the
        batch decides how a product is rounded, and must not decide between experts."""
        kind = torch.promote_types(rows.dtype, torch.float32) if self.training else torch.float64
        with torch.autocast(rows.device.type, enabled=False):
            return functional.linear(rows.to(kind), layer.weight.to(kind))


class ExpertLinear(nn.Module):
    """W_e x + b_e for the rows of each expert e."""

    def __init__(self, maps: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([each.weight.detach() for each in maps]))
        self.bias = nn.Parameter(torch.stack([each.bias.detach() for each in maps]))

    def forward(self, rows: Float[Tensor, "slots input"], groups: Groups) -> Float[Tensor, "slots output"]:
        return products(rows, self.weight, self.bias, groups)


class Experts(nn.Module):
    """Σ_e G(x)_e E_e(x), with G(x) = softmax(H(x)) over the `top_k` highest scores and 0 elsewhere  (eq. 1 to 5).

    `capacity` c lets an expert serve at most ⌈c · rows · top_k / num_experts⌉ rows in training. Who finds it full asks the next
    best; `overflowed` counts the (choices that went to another expert, choices that nobody served).
    """

    overflowed: Int[Tensor, "2"]

    def __init__(
        self,
        size: int,
        inner: int,
        *,
        activation: str = "relu",
        num_experts: int = 4,
        top_k: int = 2,
        capacity: float | None = None,
        noise: bool = True,
        balance: float = 0.01,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        check(activation, num_experts, top_k, capacity)
        self.num_experts, self.top_k, self.capacity, self.balance = num_experts, top_k, capacity, balance
        self.gate = Gate(size, num_experts, noise)
        networks = [FEEDFORWARDS[activation](size, inner, dropout) for _ in range(num_experts)]
        self.network = networks[0]  # one network, whose two maps are stacks of all
        self.network.add_module("down", ExpertLinear([network.down for network in networks]))
        self.network.add_module("up", ExpertLinear([network.up for network in networks]))
        self.register_buffer("overflowed", torch.zeros(2, dtype=torch.long), persistent=False)

    def forward(self, states: States, visible: Bool[Tensor, "*rows"] | None = None) -> SublayerOutput:
        mixed, use = self.mix(states, visible)
        return SublayerOutput(mixed, self.cost(use))

    def mix(self, states: States, visible: Bool[Tensor, "*rows"] | None = None) -> Mixed:
        """Rows that are not visible get no expert, come out as 0 and use nobody."""
        rows = states.reshape(-1, states.shape[-1])
        seen = rows.new_ones(len(rows), dtype=torch.bool) if visible is None else visible.reshape(-1)
        scored = self.gate(rows)
        wanted = self.want(scored.noisy, seen)
        limited = self.training and self.capacity is not None
        routing = self.fit(scored.noisy, seen) if limited else wanted
        groups = Groups.sort(
            routing.experts.masked_fill(~routing.served, self.num_experts), self.num_experts, self.most(len(rows))
        )
        results = groups.collect(self.serve(groups.deal(rows), groups))
        weights = share(scored.noisy, routing).to(results.dtype)
        mixed = (weights[:, None] @ results).squeeze(1)
        return Mixed(mixed.view(states.shape), self.use(scored, wanted) if self.training else None)

    def serve(self, rows: Float[Tensor, "slots size"], groups: Groups) -> Float[Tensor, "slots size"]:
        """E_e(x), for the rows of every expert e."""
        network = self.network
        served: Tensor = network.down(network.dropout(network.activate(network.up(rows, groups))), groups)
        return served

    def want(self, scores: Scores, seen: Bool[Tensor, "rows"]) -> Routing:
        experts = scores.topk(self.top_k, dim=1).indices
        return Routing(experts, seen[:, None].expand_as(experts))

    def shares(self, scored: Scored) -> Float[Tensor, "rows number"]:
        """G(x) in evaluation mode, where no expert is full: 0 for those that a row does not use."""
        routing = self.want(scored.noisy, scored.noisy.new_ones(len(scored.noisy), dtype=torch.bool))
        return torch.zeros_like(scored.noisy).scatter(1, routing.experts, share(scored.noisy, routing))

    def most(self, rows: int) -> int:
        """Rows that an expert may have to serve."""
        limited = self.training and self.capacity is not None
        return min(rows, math.ceil((self.capacity or 0) * rows * self.top_k / self.num_experts)) if limited else rows

    def fit(self, scores: Scores, seen: Bool[Tensor, "rows"]) -> Routing:
        """Experts with room: see `fill`. Counts those who found none where they asked first."""
        limit = (seen.sum().double() * (self.capacity or 0) * self.top_k / self.num_experts).ceil().long()
        asked = scores.topk(min(self.num_experts, TRIES * self.top_k), dim=1).indices
        granted = fill(asked, seen, limit.expand(self.num_experts), self.top_k)
        first = granted.long().argsort(dim=1, descending=True, stable=True)[:, : self.top_k]
        wishes, served, kept = seen.sum() * self.top_k, granted.sum(), granted[:, : self.top_k].sum()
        self.overflowed += torch.stack([served - kept, wishes - served])
        return Routing(asked.gather(1, first), granted.gather(1, first))

    def use(self, scored: Scored, wanted: Routing) -> Use:
        """Counted by the experts that rows prefer, also where capacity sends them to others: what is learned is preferring."""
        none = torch.zeros_like(scored.noisy)
        importance = none.scatter(1, wanted.experts, share(scored.noisy, wanted)).sum(dim=0)
        chances = none.scatter(1, wanted.experts, 1.0) if scored.deviation is None else probability(scored, self.top_k)
        return Use(importance, chances.masked_fill(~wanted.served[:, :1], 0).sum(dim=0))

    def cost(self, use: Use | None) -> Float[Tensor, ""] | None:
        """w (CV(importance)² + CV(load)²)  (section 4, appendix A)."""
        return None if use is None else (self.balance * (variation(use.importance) + variation(use.load))).float()


class Between(nn.Module):
    """x + σ(Σ_e G(x)_e E_e(x)): experts between two recurrent layers, with a way around them  (appendix E)."""

    def __init__(self, experts: Experts, sigmoid: bool = True) -> None:
        super().__init__()
        self.experts, self.sigmoid = experts, sigmoid

    def forward(self, states: States, visible: Bool[Tensor, "*rows"] | None = None) -> Mixed:
        mixed, use = self.experts.mix(states, visible)
        return Mixed(states + (mixed.sigmoid() if self.sigmoid else mixed), use)


def total(uses: Iterable[Use | None]) -> Use | None:
    """Of several steps."""
    found = [use for use in uses if use is not None]
    return Use(*(torch.stack(side).sum(dim=0) for side in zip(*found, strict=True))) if found else None


def check(activation: str, number: int, chosen: int, capacity: float | None) -> None:
    if activation not in FEEDFORWARDS:
        raise UserError(f"unknown activation {activation!r} of experts; choose from {', '.join(FEEDFORWARDS)}")
    if not 1 <= chosen <= number:
        raise UserError(f"of {number} experts each position uses at least 1 and at most {number} (given: {chosen})")
    if capacity is not None and capacity <= 0:
        raise UserError(f"the capacity of experts is above 0, or none is given (given: {capacity})")


def share(scores: Scores, routing: Routing) -> Float[Tensor, "rows chosen"]:
    """softmax over the experts that serve, 0 for the others  (eq. 3 and 5)."""
    lowest = torch.finfo(scores.dtype).min  # finite: a row that nobody serves has no NaN
    chosen = scores.gather(1, routing.experts).masked_fill(~routing.served, lowest)
    return chosen.softmax(dim=1) * routing.served


def fill(
    asked: Int[Tensor, "rows tries"], seen: Bool[Tensor, "rows"], room: Int[Tensor, "number"], chosen: int
) -> Bool[Tensor, "rows tries"]:
    """Rows ask their experts in turn until `chosen` have taken them; an expert takes rows in their order while it has room."""
    number, granted, got = len(room), [], torch.zeros_like(seen, dtype=torch.long)
    for experts in asked.unbind(dim=1):
        asking = seen & (got < chosen)
        taken = asking & (before(experts.masked_fill(~asking, number), number) < room[experts])
        room = room.scatter_add(0, experts, -taken.long())
        got = got + taken
        granted.append(taken)
    return torch.stack(granted, dim=1)


def before(experts: Int[Tensor, "rows"], number: int) -> Int[Tensor, "rows"]:
    """How many rows ask the same expert before this one does."""
    groups = Groups.sort(experts[:, None], number, len(experts))
    begins = torch.cat([groups.ends.new_zeros(1), groups.ends])
    return groups.inverse - begins[experts]


def probability(scored: Scored, chosen: int) -> Scores:
    """P(x, i): that expert i is chosen when only its own noise is drawn again  (appendix A, eq. 8 and 9)."""
    noisy, clean, deviation = scored
    if chosen == noisy.shape[1] or deviation is None:
        return torch.ones_like(noisy)
    best = noisy.topk(chosen + 1, dim=1).values
    last, next_best = best[:, -2:-1], best[:, -1:]
    to_beat = torch.where(noisy >= last, next_best, last)  # the k-th highest score of the others
    chances: Tensor = torch.special.ndtr((clean - to_beat) / deviation)
    return chances


def variation(sums: Float[Tensor, "number"]) -> Float[Tensor, ""]:
    """CV² = variance / mean²; 0 where nothing was summed."""
    return sums.var(correction=0) / sums.mean().square().clamp_min(1e-10)
