"""How fast a device trains: a few steps of a recipe's own model, on a batch of mean lengths."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from regard.data.fields import Shape
from regard.models import build, configure
from regard.models.device import autocast, choose_device, on_device, use_threads
from regard.planning.example import Lengths, example
from regard.recipe import Training
from regard.training.objective import Objective

WARM, STEPS = 2, 5
SMALL = 1024  # tokens of a batch on a CPU, where more are no faster


def tokens_a_second(
    section: Mapping[str, Any],
    shapes: Mapping[str, Shape],
    lengths: Lengths,
    batch_tokens: int,
    training: Training,
    device: str,
) -> float:
    """Target tokens, forward, backward and AdamW; the median of a few steps."""
    place, config = choose_device(device), configure(section)
    model = build(config, *shapes.values()).to(place).train()
    rows = lengths.rows(batch_tokens if place.type == "cuda" else min(batch_tokens, SMALL))
    objective = Objective(model, training.label_smoothing, entropy=training.entropy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    batch = on_device(example(config, shapes, lengths, rows), place)

    def step() -> None:
        with autocast(place, training.precision):
            loss: Tensor = objective(batch).total / (rows * lengths.target)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    with use_threads(training.threads):
        seconds = list(timed(step, place))[WARM:]
    return rows * lengths.target / statistics.median(seconds)


def timed(step: Callable[[], None], device: torch.device) -> Iterator[float]:
    for _ in range(WARM + STEPS):
        before = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        yield time.perf_counter() - before
