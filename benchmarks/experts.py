"""Mixture of experts in training, forward and backward: against a loop over experts as any library user would write it, and
against one dense network of the same FLOPs a token (which sets the bound: it neither chooses nor sorts).

python benchmarks/experts.py --device cpu|cuda [--tokens 2048] [--numbers 4,16,64,256]
"""

import argparse

import torch
from timing import race, report
from torch import nn
from torch.nn import functional

from regard.nn.transformer.experts import Experts
from regard.nn.transformer.feedforward import FeedForward, SublayerOutput

SIZES = {"cpu": (256, 512, 2048), "cuda": (512, 2048, 16384)}  # size, inner, tokens


class Plain(nn.Module):
    """A module an expert; each finds its own rows, computes them and adds them up."""

    def __init__(self, size, inner, number, chosen):
        super().__init__()
        self.gate, self.noise = (nn.Linear(size, number, bias=False) for _ in range(2))
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(size, inner), nn.ReLU(), nn.Linear(inner, size)) for _ in range(number)
        )
        self.chosen = chosen

    def forward(self, rows):
        scores = self.gate(rows).float()
        scores = scores + torch.randn_like(scores) * functional.softplus(self.noise(rows).float())
        best = scores.topk(self.chosen)
        weights, results = best.values.softmax(dim=1), torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            mine, place = (best.indices == number).nonzero(as_tuple=True)
            served = expert(rows[mine]) * weights[mine, place, None]
            results.index_add_(0, mine, served.to(results.dtype))
        return SublayerOutput(results)


def trained(module, rows, slope, device):
    """One step's forward and backward as a function."""
    leaves = [rows, *module.parameters()]

    def step():
        with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
            fed = module(rows)
        states = fed.states if fed.bias is None else fed.states + fed.bias
        total = (states.float() * slope).sum() + (0 if fed.cost is None else fed.cost)
        gradients = torch.autograd.grad(total, leaves)
        if device == "cuda":
            torch.cuda.synchronize()
        return gradients

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=SIZES, default="cpu")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--numbers", default="4,16,64,256")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    size, inner, tokens = SIZES[given.device]
    tokens, chosen = given.tokens or tokens, 2
    torch.manual_seed(1)
    rows, slope = (torch.randn(tokens, size, device=given.device) for _ in range(2))
    rows.requires_grad_()
    for number in map(int, given.numbers.split(",")):
        modules = {
            "experts": Experts(size, inner, num_experts=number, top_k=chosen),
            "loop": Plain(size, inner, number, chosen),
            "dense": FeedForward(size, chosen * inner),
        }
        steps = {name: trained(module.to(given.device), rows, slope, given.device) for name, module in modules.items()}
        medians = race(steps, rounds=given.rounds)
        facts = {"number": number, "chosen": chosen, "tokens": tokens, "size": size, "inner": inner, "device": given.device}
        facts["tokens_per_s"] = round(tokens / medians["experts"])
        for rival in ("loop", "dense"):
            report("experts", "experts", rival, medians, **facts)


main()
