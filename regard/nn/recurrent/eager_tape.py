"""The eager engine of a tape scan, on any device.

Attention weights are computed again going backward. Position i of the tape gets its gradient, Σ_t α_ti ds_t and so on, in one
reading of all later queries, when backward comes to it: nothing is added up position by position.
"""

from typing import Any

import torch
from torch import Tensor

from regard.nn.linear import at_least_float32, packed
from regard.nn.recurrent.tape_scan import Fixed, TapeEngine, TapeGradients, Tapes


def doubled(inputs: Tensor) -> Tensor:
    """-2 x, so that σ(-2q - 2k) = r, and tanh(q + k) = 1 - 2 r, tanh' = 4 r (1 - r): on a CPU σ is faster than tanh."""
    return at_least_float32(inputs) * -2


def halves(query: Tensor, key: Tensor) -> Tensor:
    return (query + key).sigmoid_()


def read_tape(
    fixed: Fixed, tapes: Tapes, twice: Tensor, time: int, query: Tensor, total: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What step `time` reads of the tape, h and c, and the log-sum-exp of its scores."""
    known = fixed.before + time
    scores = total - 2 * (halves(doubled(query)[:, None], twice[:, :known]) @ at_least_float32(fixed.score_vector))
    if fixed.before:
        scores[:, : fixed.before].masked_fill_(~fixed.visible, float("-inf"))
    log_sum = scores.logsumexp(dim=-1)
    weights = torch.exp(scores - log_sum.masked_fill(log_sum.isinf(), 0.0)[:, None])[:, None]
    hidden, memory = ((weights.to(tape.dtype) @ tape[:, :known]).squeeze(1) for tape in (tapes.hidden, tapes.memory))
    return hidden, memory, log_sum


def forward(fixed: Fixed, projected: Tensor, tapes: Tapes) -> None:
    width, before, rows = fixed.width, fixed.before, len(projected)
    pre, asked = projected[..., :width], projected[..., width:]
    gates, query, key = (packed(weight, rows) for weight in (fixed.gates, fixed.query, fixed.key))
    twice, total = doubled(tapes.keys), at_least_float32(fixed.score_vector).sum()
    tapes.queries.copy_(asked)
    for time in range(projected.shape[1]):
        context, adapted = tapes.contexts[:, time], torch.zeros_like(tapes.hidden[:, 0])
        if not (fixed.given and time == 0):
            tapes.queries[:, time] += query(context)
            context, adapted, tapes.log_sums[:, time] = read_tape(fixed, tapes, twice, time, tapes.queries[:, time], total)
        pre[:, time] += gates(context)
        blocks = pre[:, time].chunk(width // fixed.query.shape[0], dim=-1)
        new = fixed.equation.update(blocks, fixed.equation.State(*(context, adapted)[: fixed.equation.starts]))
        tapes.contexts[:, time + 1], tapes.adapted[:, time] = context, adapted
        tapes.hidden[:, before + time], tapes.memory[:, before + time] = new[0], new[-1]
        tapes.keys[:, before + time] = key(new[0])
        twice[:, before + time] = doubled(tapes.keys[:, before + time])


class TapeBackward:
    """Backward through one scan over a tape."""

    def __init__(self, fixed: Fixed, projected: Tensor, tapes: Tapes, gradients: tuple[Tensor, ...]) -> None:
        self.fixed, self.tapes = fixed, tapes
        self.hidden, self.memory, self.keys = (gradient.clone() for gradient in gradients[:3])  # of each position so far
        self.contexts = gradients[3].clone()
        self.saved = projected[..., : fixed.width]
        self.pre, self.queries = torch.zeros_like(self.saved), torch.zeros_like(tapes.queries)
        self.adapted, self.score_vector = (
            torch.zeros_like(tapes.adapted),
            torch.zeros_like(at_least_float32(fixed.score_vector)),
        )
        self.twice = doubled(tapes.queries), doubled(tapes.keys)
        self.middle = tapes.log_sums.new_zeros(tapes.log_sums.shape)  # Σ_i α_i dα_i of each step
        rows = len(projected)
        self.maps = [packed(weight.T.contiguous(), rows) for weight in (fixed.gates, fixed.query, fixed.key)]

    def run(self) -> TapeGradients:
        fixed, time = self.fixed, self.pre.shape[1]
        for step in reversed(range(time)):
            self.column(fixed.before + step, step + 1)
            self.update(step)
            self.row(step)
        for position in range(fixed.before):
            self.column(position, 0)
        start = slice(0, fixed.before)
        return TapeGradients(
            self.pre,
            self.queries,
            self.hidden[:, start],
            self.memory[:, start],
            self.keys,
            self.contexts[:, 0],
            self.score_vector,
        )

    def pull(self, step: int) -> tuple[Any, ...]:
        """Back through the elementwise update."""
        equation, at = self.fixed.equation, self.fixed.before + step
        with torch.enable_grad():
            pre = [block.detach().requires_grad_() for block in self.saved[:, step].chunk(len(equation.terms), dim=-1)]
            adapted = self.tapes.adapted[:, step].detach().requires_grad_()
            state = equation.State(*(self.tapes.contexts[:, step + 1].detach(), adapted)[: equation.starts])
            new = equation.update(pre, state)
        seeds = [self.hidden[:, at], self.memory[:, at]][: len(new)]
        return torch.autograd.grad(new, [*pre, adapted], seeds, allow_unused=True)

    def update(self, step: int) -> None:
        """dh -> dp, dc', ds of one step; the key's share in dh first."""
        gates, _, key = self.maps
        at = self.fixed.before + step
        self.hidden[:, at] += key(self.keys[:, at])
        *pre, adapted = self.pull(step)
        self.pre[:, step] = torch.cat(pre, dim=-1)
        if adapted is not None:
            self.adapted[:, step] = adapted
        self.contexts[:, step + 1] += gates(self.pre[:, step])

    def row(self, step: int) -> None:
        """Step `step` attended to all earlier positions: the gradient of its query, and of the context before it."""
        fixed, tapes = self.fixed, self.tapes
        context, adapted = self.contexts[:, step + 1], self.adapted[:, step]
        if fixed.given and step == 0:
            self.contexts[:, 0] += context
            return
        known = fixed.before + step
        self.middle[:, step] = (context * tapes.contexts[:, step + 1]).sum(-1) + (adapted * tapes.adapted[:, step]).sum(-1)
        if known:
            r, weights = self.weights(slice(step, step + 1), slice(0, known))
            direct = (tapes.hidden[:, :known] @ context[..., None] + tapes.memory[:, :known] @ adapted[..., None])[..., 0]
            scores = weights * (direct - self.middle[:, step, None])
            self.score_vector -= 2 * (scores[:, None] @ r).sum((0, 1))  # Σ_i of the scores' gradients is 0
            self.queries[:, step] = ((scores[:, None] @ (r - r * r)).squeeze(1) * (4 * fixed.score_vector)).to(
                self.queries.dtype
            )
        self.contexts[:, step] += self.maps[1](self.queries[:, step])

    def column(self, position: int, first: int) -> None:
        """The steps from `first` on attended to this position: the gradients of its key and its values."""
        if self.fixed.given:
            first = max(first, 1)
        if first >= self.pre.shape[1]:
            return
        tapes, steps = self.tapes, slice(first, None)
        r, weights = self.weights(steps, slice(position, position + 1))
        contexts, adapted = self.contexts[:, first + 1 :], self.adapted[:, steps]
        direct = (contexts @ tapes.hidden[:, position, :, None] + adapted @ tapes.memory[:, position, :, None])[..., 0]
        scores = weights * (direct - self.middle[:, steps])
        self.hidden[:, position] += (weights[:, None].to(contexts.dtype) @ contexts).squeeze(1)
        self.memory[:, position] += (weights[:, None].to(adapted.dtype) @ adapted).squeeze(1)
        self.keys[:, position] += ((scores[:, None] @ (r - r * r)).squeeze(1) * (4 * self.fixed.score_vector)).to(
            self.keys.dtype
        )

    def weights(self, steps: slice, positions: slice) -> tuple[Tensor, Tensor]:
        """α of one step for many positions or of many steps for one position, and the r of `halves`."""
        queries, keys = self.twice[0][:, steps], self.twice[1][:, positions]
        r = halves(queries, keys)
        scores = at_least_float32(self.fixed.score_vector).sum() - 2 * (r @ at_least_float32(self.fixed.score_vector))
        log_sum = self.tapes.log_sums[:, steps]
        weights = torch.exp(scores - log_sum.masked_fill(log_sum.isinf(), 0.0))
        if positions.stop <= self.fixed.before:
            weights = weights * self.fixed.visible[:, positions]
        elif positions.start == 0 and self.fixed.before:
            weights[:, : self.fixed.before] *= self.fixed.visible
        return r, weights


def backward(fixed: Fixed, projected: Tensor, tapes: Tapes, gradients: tuple[Tensor, ...]) -> TapeGradients:
    return TapeBackward(fixed, projected, tapes, gradients).run()


EAGER = TapeEngine(forward, backward)
