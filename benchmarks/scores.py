"""Additive attention on a CPU, forward and backward, against the plain formula: step by step as a recurrent decoder asks, and
all queries at once, with what each keeps for the way back.

python benchmarks/scores.py
"""

import torch
from timing import race, report

from regard.lab.pace import kept
from regard.nn.attention import AttentionTask, KeyRange, Soft, attend
from regard.nn.attention.additive import additive, bind_additive
from regard.nn.attention.pairs import Network

SIZES = [(64, 26, 512, 26), (32, 20, 256, 20), (80, 10, 96, 12)]  # batch, source, size, steps
AT_ONCE = [(4, 128, 128), (16, 32, 256)]  # batch, target = source, size


def steps(score, keys, queries):
    """Each query alone, as a decoder asks; then all gradients."""
    total = sum(score(query).square().sum() for query in queries.split(1, dim=2))
    return torch.autograd.grad(total, [keys, queries])


def plain(query, keys, values, score_vector):
    return (additive(query, keys, score_vector).softmax(dim=-1) @ values).square().sum()


def ours(query, keys, values, score_vector):
    return attend(AttentionTask(Network(score_vector), query, keys, values, None, KeyRange(), Soft())).context.square().sum()


torch.manual_seed(1)
for batch, source, size, length in SIZES:
    keys, queries = (torch.randn(batch, 1, time, size, requires_grad=True) for time in (source, length))
    score_vector = torch.randn(1, size)
    medians = race({
        "ours": lambda k=keys, q=queries, v=score_vector: steps(bind_additive(k, v), k, q),
        "tanh formula": lambda k=keys, q=queries, v=score_vector: steps(lambda query, k=k, v=v: additive(query, k, v), k, q),
    }, rounds=9)  # fmt: skip
    report("additive, step by step", "ours", "tanh formula", medians, batch=batch, source=source, size=size, steps=length)

for batch, time, size in AT_ONCE:
    inputs = [torch.randn(batch, 1, time, size, requires_grad=True) for _ in range(3)]
    inputs.append(torch.randn(1, size, requires_grad=True))
    ways = {"ours": ours, "tanh formula": plain}
    medians = race({name: lambda w=way, i=inputs: torch.autograd.grad(w(*i), i) for name, way in ways.items()}, rounds=9)
    memory = {
        f"{name} keeps MB".replace("ours", "our way"): round(kept(lambda w=way, i=inputs: w(*i)) / 2**20, 1)
        for name, way in ways.items()
    }
    report("additive, at once", "ours", "tanh formula", medians, batch=batch, time=time, size=size, **memory)
