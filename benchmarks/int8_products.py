"""How fast products.c multiplies integers: JSON rows with products per second and bytes of weights per second, one thread.

python benchmarks/int8_products.py

`far`: weights that lie in memory, for there are more of them than caches hold; `near`: one matrix again and again.
"""

import json
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from regard.engine.products import PRECISIONS, Product

SHAPES = [(512, 512), (2048, 512), (512, 2048), (32000, 512)]  # outputs, inputs
ROWS, BYTES, ROUNDS = (1, 5, 16, 64, 416), 120_000_000, 3


def seconds(products: list[Product], rows: int, inputs: int, times: int) -> float:
    """Of one product, in the best of a few rounds of CPU time."""
    given, best = torch.randn(rows, inputs), float("inf")
    for _ in range(ROUNDS + 1):
        begin = time.process_time()
        for _ in range(times):
            for product in products:
                product(given)
        best = min(best, (time.process_time() - begin) / times / len(products))
    return best


@torch.inference_mode()
def main() -> None:
    torch.set_num_threads(1)
    for outputs, inputs in SHAPES:
        size = outputs * inputs
        many = [PRECISIONS["int8"](torch.randn(outputs, inputs), None) for _ in range(BYTES // size + 1)]
        for rows in ROWS:
            for where, products, times in (("far", many, 1), ("near", many[:1], max(1, len(many)))):
                taken = seconds(products, rows, inputs, times)
                row = {"benchmark": "int8_products", "outputs": outputs, "inputs": inputs, "rows": rows, "weights": where}
                row |= {"gigaproducts_per_s": round(rows * size / taken / 1e9, 1), "gb_per_s": round(size / taken / 1e9, 1)}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
