"""One trial: train a model by the main loop, measure it."""

import math
import signal

import torch

from regard.lab.predictor import Predictor
from regard.lab.search import Hyperparameters
from regard.lab.settings import Size
from regard.lab.tasks import NATS, Figure, Loaded
from regard.lab.windows import WindowFeed, Windows, asked
from regard.models.device import on_device
from regard.recipe import Training
from regard.training.distributed import Group
from regard.training.loop import Trainer
from regard.training.watch import DivergedError


def build(cell: str, vocabulary: int, hidden_size: int, scale: float, seed: int) -> Predictor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Predictor(cell, vocabulary, hidden_size)
    model.scale(scale)
    return model


def train(model: Predictor, loaded: Loaded, size: Size, choice: Hyperparameters, updates: int, seed: int) -> float:
    """Nats in validation after the last update; inf if a step was not finite. Nothing is kept but the model."""
    feed = WindowFeed(loaded.train.training(size.batch, size.window, seed))
    group = Group(0, 1, model.output.weight.device)
    trainer = Trainer(
        model, feed, training_of(choice, updates), None, group, lambda: {"loss": measure(model, loaded.valid, size, NATS)}
    )
    try:
        ending = trainer.run(talk=False)
    except DivergedError:
        return math.inf
    if ending.signal is not None:  # the loop has put it off until its step was done
        signal.raise_signal(ending.signal)
        raise KeyboardInterrupt  # where a process was told to ignore the signal (a shell's `&` does)
    return math.inf if ending.progress.skipped else ending.progress.best[0].loss


def training_of(choice: Hyperparameters, updates: int) -> Training:
    """Adam, the rate falling to 0 in a line, the gradient clipped; one validation, at the end."""
    return Training(
        updates=updates, learning_rate=choice.learning_rate, schedule="linear", warmup=0, betas=(0.9, 0.999), weight_decay=0,
        clip=choice.clip, label_smoothing=0, log_every=updates, validate_every=updates, save_every=updates,
    )  # fmt: skip


@torch.no_grad()
def measure(model: Predictor, windows: Windows, size: Size, figure: Figure) -> float:
    """The figure's mean over all that is asked."""
    total, number, device = 0.0, 0, model.output.weight.device
    for window in windows.once(size.batch, size.window):
        there = on_device(window, device)
        total += float(figure.add(model, model.read(there), there["target"].values))
        number += asked(window)
    return total / number
