"""Products in float32 for inference, our own beside oneDNN's: weights laid out once, CPU time of one thread, in turns, medians.

python benchmarks/float32_products.py [ROWS ...]
"""

import json
import os
import statistics
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from regard.engine.products import PRECISIONS, by_operators

SIZES = ((512, 512), (512, 2048), (2048, 512), (512, 32000))  # inputs and outputs of a base Transformer's
COLD = 1 << 28  # bytes of weights between two uses of one, which leave no cache with it


def seconds(products: list, rows: torch.Tensor) -> float:
    begin = time.process_time()
    for product in products:
        product(rows)
    return (time.process_time() - begin) / len(products)


@torch.inference_mode()
def measured(count: int, inputs: int, outputs: int, rounds: int = 5) -> dict[str, float]:
    weights = [torch.randn(outputs, inputs) for _ in range(max(1, COLD // (4 * inputs * outputs)) if count <= 16 else 1)]
    ways = {"ours": PRECISIONS["float32"], "oneDNN": by_operators}
    made = {who: [pack(weight, None) for weight in weights] for who, pack in ways.items()}
    rows = torch.randn(count, inputs)
    taken = [{who: seconds(products, rows) for who, products in made.items()} for _ in range(rounds + 1)][1:]
    return {who: statistics.median(each[who] for each in taken) for who in ways}


if __name__ == "__main__":
    torch.set_num_threads(1)
    for count in map(int, sys.argv[1:] or (1, 2, 4, 5, 16, 64, 1024)):
        for inputs, outputs in SIZES:
            took = measured(count, inputs, outputs)
            row = {"benchmark": "float32_products", "rows": count, "inputs": inputs, "outputs": outputs}
            row |= {who: round(count * inputs * outputs / each / 1e9, 1) for who, each in took.items()}
            print(json.dumps(row | {"unit": "1e9 products/s", "ratio": round(took["oneDNN"] / took["ours"], 2)}), flush=True)
