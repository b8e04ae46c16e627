"""One trial: train a model, measure it."""

from itertools import islice

import torch
from torch.nn.utils import clip_grad_norm_

from regard.lab.predictor import Predictor
from regard.lab.search import Choice
from regard.lab.settings import Size
from regard.lab.tasks import Figure
from regard.lab.windows import IGNORE, Windows

LOOK_EVERY = 50  # updates between two looks at whether the loss is still a number


def build(cell: str, vocabulary: int, hidden_size: int, scale: float, seed: int) -> Predictor:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Predictor(cell, vocabulary, hidden_size)
    model.scale(scale)
    return model


def train(model: Predictor, windows: Windows, size: Size, choice: Choice, updates: int, seed: int) -> bool:
    """Adam, the rate falling to 0 in a line, the gradient clipped. False if the loss is no number any more."""
    optimizer = torch.optim.Adam(model.parameters(), lr=choice.learning_rate)
    source = islice(windows.training(size.batch, size.window, seed), updates)
    for step, (outputs, targets) in enumerate(model.read(source)):
        loss = model.loss(outputs, targets) / (targets != IGNORE).sum().clamp(min=1)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(model.parameters(), choice.clip)
        optimizer.param_groups[0]["lr"] = choice.learning_rate * (1 - step / updates)
        optimizer.step()
        if step % LOOK_EVERY == LOOK_EVERY - 1 and not loss.isfinite():
            return False
    return all(bool(parameter.isfinite().all()) for parameter in model.parameters())


@torch.no_grad()
def measure(model: Predictor, windows: Windows, size: Size, figure: Figure) -> float:
    """The figure's mean over all that is asked."""
    total, asked = 0.0, 0
    for outputs, targets in model.read(windows.once(size.batch, size.window)):
        total += float(figure.add(model, outputs, targets))
        asked += int((targets != IGNORE).sum())
    return total / asked
