"""Dropout (Srivastava et al. 2014) whose mask costs 16 random bits an element (benchmarks/dropout.py: torch's is slower)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

STEPS = 1 << 16  # the rate is rounded to this many steps, and the scale with it


def keep_mask(inputs: Float[Tensor, "*any"], rate: float) -> Float[Tensor, "*any"]:
    """0 with probability `rate`, 1 / (1 - rate) otherwise."""
    dropped = round(rate * STEPS)
    words = torch.empty(-(-inputs.numel() // 4), dtype=torch.int64).random_(-(2**63), None)  # all 64 bits
    bits = words.view(torch.int16)[: inputs.numel()].view(inputs.shape)
    return bits.ge(dropped - STEPS // 2).to(inputs.dtype).mul_(STEPS / (STEPS - dropped))


class Dropout(nn.Dropout):
    def forward(self, input: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
        nothing_or_all = round(self.p * STEPS) in (0, STEPS)
        if not self.training or nothing_or_all or input.device.type != "cpu":
            return functional.dropout(input, self.p, self.training)
        return input * keep_mask(input, self.p)


class LockedDropout(Dropout):
    """The same mask at every step of a sequence  (Gal & Ghahramani 2016: variational dropout)."""

    def forward(self, input: Float[Tensor, "batch time size"]) -> Float[Tensor, "batch time size"]:
        return input * super().forward(torch.ones_like(input[:, :1])) if self.training and self.p > 0 else input
