"""y = x Wᵀ + b in float32 on a CPU: `matmul` against torch.nn.functional.linear, forward only.

python benchmarks/products.py
"""

import torch
from timing import race, report
from torch.nn import functional

from regard.nn.linear import matmul

SIZES = [(32, 96, 288), (64, 512, 512), (64, 512, 2048), (64, 1024, 2048), (256, 512, 8000), (1664, 512, 2048)]

torch.manual_seed(1)
with torch.inference_mode():
    for rows, inputs, outputs in SIZES:
        x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
        medians = race({
            "product": lambda x=x, w=weight, b=bias: matmul(x, w, b),
            "functional.linear": lambda x=x, w=weight, b=bias: functional.linear(x, w, b),
        }, rounds=40)  # fmt: skip
        report("product", "product", "functional.linear", medians, rows=rows, inputs=inputs, outputs=outputs)
