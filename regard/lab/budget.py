"""Equal budgets: the hidden size with which a cell's whole model has as many parameters as the others'."""

from bisect import bisect_right

import torch

from regard.lab.predictor import Predictor

LARGEST = 1 << 13  # hidden size


def count(cell: str, vocabulary: int, hidden_size: int) -> int:
    """Parameters of the whole model, counted on one that holds no numbers."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in Predictor(cell, vocabulary, hidden_size).parameters())


def size_for(cell: str, vocabulary: int, budget: int) -> int:
    """The hidden size whose model comes closest to `budget` parameters; of two as close, the smaller."""
    fitting = bisect_right(range(1, LARGEST), budget, key=lambda size: count(cell, vocabulary, size))
    return min((max(1, fitting), fitting + 1), key=lambda size: abs(count(cell, vocabulary, size) - budget))
