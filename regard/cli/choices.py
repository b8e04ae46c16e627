"""Sensible choices for data of a given size, when no recipe is named."""

from typing import Any

from regard.recipe import override, read_values

# up to so many rows: the recipe and what differs from it. Small data wants small vocabularies and much dropout.
BY_SIZE: list[tuple[int, str, list[str]]] = [
    (2_000, "bahdanau2015-small", ["data.tokenizer.size=1000", "data.batch_tokens=1024", "training.updates=2000"]),
    (20_000, "bahdanau2015-small", ["data.tokenizer.size=4000", "data.batch_tokens=2048", "training.updates=6000"]),
    (200_000, "bahdanau2015-small", []),
    (
        1 << 62,
        "bahdanau2015-small",
        ["data.tokenizer.size=16000", "data.batch_tokens=8192", "training.updates=100000", "model.decoder.dropout=0.2"],
    ),
]


def recipe_for(rows: int) -> dict[str, Any]:
    name, changes = next((name, changes) for limit, name, changes in BY_SIZE if rows <= limit)
    return override(read_values(name), changes)
