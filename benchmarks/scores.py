"""Additive attention in a recurrent decoder's loop on a CPU: forward and backward of T steps, against the plain formula.

python benchmarks/scores.py
"""

import torch
from timing import race, report

from regard.nn.attention.additive import additive, bind_additive

SIZES = [(64, 26, 512, 26), (32, 20, 256, 20), (80, 10, 96, 12), (4, 128, 128, 128)]  # batch, source, size, steps


def steps(score, keys, queries):
    """Each query alone, as a decoder asks; then all gradients."""
    total = sum(score(query).square().sum() for query in queries.split(1, dim=1))
    return torch.autograd.grad(total, [keys, queries])


torch.manual_seed(1)
for batch, source, size, length in SIZES:
    keys, queries = torch.randn(batch, source, size, requires_grad=True), torch.randn(batch, length, size, requires_grad=True)
    energy = torch.randn(size)
    medians = race({
        "ours": lambda k=keys, q=queries, v=energy: steps(bind_additive(k, v), k, q),
        "tanh formula": lambda k=keys, q=queries, v=energy: steps(lambda query, k=k, v=v: additive(query, k, v), k, q),
    }, rounds=9)  # fmt: skip
    report("additive", "ours", "tanh formula", medians, batch=batch, source=source, size=size, steps=length)
