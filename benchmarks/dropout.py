"""Dropout in training on a CPU: `regard.nn.dropout` against torch's, forward and backward.

python benchmarks/dropout.py
"""

import torch
from timing import race, report

from regard.nn.dropout import Dropout

torch.manual_seed(1)
for shape in ((64, 512), (64, 26, 512)):
    inputs, noise = torch.randn(shape, requires_grad=True), torch.randn(shape)
    layers = {"ours": Dropout(0.1), "nn.Dropout": torch.nn.Dropout(0.1)}
    rivals = {
        name: lambda layer=layer, x=inputs, g=noise: torch.autograd.grad(layer(x), x, g) for name, layer in layers.items()
    }
    report("dropout", "ours", "nn.Dropout", race(rivals, rounds=25), shape=list(shape))
