"""Dropout (Srivastava et al. 2014) whose mask costs 16 random bits an element (benchmarks/dropout.py: torch's is slower)."""

from functools import singledispatch

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.nn.outline import device_of

STEPS = 1 << 16  # the rate is rounded to this many steps, and the scale with it


def keep_mask(inputs: Float[Tensor, "*any"], rate: float) -> Float[Tensor, "*any"]:
    """0 with probability `rate`, 1 / (1 - rate) otherwise."""
    dropped = round(rate * STEPS)
    words = torch.empty(-(-inputs.numel() // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    bits = words.view(torch.int16)[: inputs.numel()].view(inputs.shape)
    return bits.ge_(dropped - STEPS // 2).to(inputs.dtype).mul_(STEPS / (STEPS - dropped))


drop = singledispatch(functional.dropout)


class Dropout(nn.Dropout):
    def forward(self, input: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        if not self.training:
            return input
        return input * keep_mask(input, self.p) if self.draws(input) else drop(input, self.p)

    def added(self, total: Float[Tensor, "*any"], input: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        """total + drop(input), in one pass where there is a mask."""
        return torch.addcmul(total, input, keep_mask(input, self.p)) if self.draws(input) else total + self(input)

    def draws(self, input: Float[Tensor, "*any"]) -> bool:
        """Whether a mask is wanted, and this is the place that makes the fastest."""
        return self.training and round(self.p * STEPS) not in (0, STEPS) and device_of(input) == "cpu"


class LockedDropout(Dropout):
    """The same mask at every step of a sequence  (Gal & Ghahramani 2016: variational dropout)."""

    def forward(self, input: Float[Tensor, "batch *time size"]) -> Float[Tensor, "batch *time size"]:
        return input * super().forward(torch.ones_like(input[:, :1])) if self.training and self.p > 0 else input
