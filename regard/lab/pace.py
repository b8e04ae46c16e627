"""How fast a recipe trains, and what memory it takes: some whole updates of a model with new weights."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.models import build, configure
from regard.models.device import choose_device
from regard.preparation import prepare
from regard.recipe import Recipe
from regard.training.distributed import Group
from regard.training.feed import feed_of
from regard.training.loop import Trainer

TIMED = 20  # updates whose speed is taken, after as many that are not


def pace(recipe: Recipe, run: Path) -> dict[str, Any]:
    """Target tokens a second of whole updates for likelihood, and the memory they take."""
    device, prepared = choose_device(recipe.training.device), prepare(recipe, run, lambda _: None)
    model = build(configure(recipe.model), *prepared.shapes).to(device)
    feed = feed_of(prepared.store, prepared.plan, model.writes, recipe.training)
    training = recipe.training.model_copy(update={"risk": None})
    trainer = Trainer(model, feed, training, None, Group(0, 1, device), dict)
    update(trainer, range(TIMED))
    memory = peak(trainer, device)
    settle(device)
    started = time.perf_counter()
    tokens = update(trainer, range(TIMED))
    settle(device)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"tokens/s": round(tokens / (time.perf_counter() - started)), "MB": memory, "parameters": parameters}


def update(trainer: Trainer, steps: range) -> int:
    total = 0
    trainer.objective.train()
    for step in steps:
        rows = trainer.feed.rows(step)
        tokens = trainer.feed.tokens(rows)
        trainer.backward(rows, tokens, step)
        nn.utils.clip_grad_norm_(trainer.model.parameters(), trainer.clip)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad(set_to_none=True)
        total += tokens
    return total


def peak(trainer: Trainer, device: torch.device) -> int:
    """Megabytes: on a GPU the most that was allocated; on a CPU what the backward pass needs, of the batch that keeps most."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        update(trainer, range(TIMED))
        return int(torch.cuda.max_memory_allocated() / 2**20)
    batches = [trainer.batch(trainer.feed.rows(step), step) for step in range(4)]
    return max(kept(lambda batch=batch: trainer.objective(batch)) for batch in batches) // 2**20  # type: ignore[misc]


def kept(way: Callable[[], object]) -> int:
    """Bytes that are kept for the backward pass."""
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        way()
    return sum(sizes.values())


def settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
