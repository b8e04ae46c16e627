"""Peak memory of a real training step on a GPU beside what `regard plan` says of it, one JSON row for each recipe."""

import argparse
import json

import torch

from regard.models import configure
from regard.planning.cost import cost_of, memory_of
from regard.planning.example import Lengths, shapes_of
from regard.planning.rate import tokens_a_second
from regard.recipe import read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=["vaswani2017-base", "convs2s2017", "luong2015-small"])
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--batch-tokens", type=int, default=16384)
    options = parser.parse_args()
    lengths = Lengths(options.length, options.length)
    for name in options.recipes:
        recipe = read(name)
        shapes, training = shapes_of(recipe.data, configure(recipe.model)), recipe.training
        cost = cost_of(recipe.model, shapes, lengths)
        planned = memory_of(cost, training.precision, options.batch_tokens)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        speed = tokens_a_second(recipe.model, shapes, lengths, options.batch_tokens, training, "cuda")
        measured = torch.cuda.max_memory_allocated()
        row = {
            "recipe": name,
            "precision": training.precision,
            "planned_gb": planned.total / 1e9,
            "measured_gb": measured / 1e9,
        }
        row |= {"ratio": planned.total / measured, "tokens_per_s": speed, "tflops": speed * cost.training / 1e12}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
