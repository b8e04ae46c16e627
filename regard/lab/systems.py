"""What an experiment compares: recipes, each with its changes, trained by the main loop and judged on the same test sets."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.data.boxes import read_boxes
from regard.data.links import read_links
from regard.decoding.load import load
from regard.drafting import draft
from regard.evaluation.evaluate import LENGTHS, evaluate, length_groups, read_test
from regard.evaluation.metrics import METRICS
from regard.lab.experiment import Asked, Row
from regard.lab.pace import pace
from regard.models import build, configure
from regard.planning.example import shapes_of
from regard.preparation import with_corpus
from regard.recipe import Decoding, Pairs, Recipe, override, read_values
from regard.run import train
from regard.training.callbacks import Callbacks

LARGEST = 1 << 13  # the widest model that is tried for a budget of parameters
# a recurrent translator so small that it is trained within a second
SMOKE = (
    "data.corpus.size=60", "data.tokenizer.size=200", "data.batch_tokens=128", "training.updates=2",
    "training.validate_every=2", "training.save_every=2", "decoding.beam=1", "decoding.max_length=8",
    "model.encoder.hidden_size=8", "model.encoder.embedding_size=8", "model.decoder.hidden_size=8",
    "model.decoder.embedding_size=8",
)  # fmt: skip


class System(NamedTuple):
    """`changes` are what is compared: nothing else changes them, as the setting and whoever asks may change all others."""

    recipe: str
    changes: Sequence[str] = ()
    data: Sequence[str] = ()
    sizes: Sequence[str] = ()


class Examined(NamedTuple):
    """What is judged: a trained model, on the rows of a test set."""

    model: Any
    test: str
    rows: Sequence[Any]
    pairs: Pairs  # where they are
    whole: Recipe  # with which it was trained


Judge = Callable[[Examined], Row]


def recipe_of(system: System, asked: Asked, seed: int = 1) -> Recipe:
    """The recipe on its data, or on the files; then the setting's changes, its sizes, what was asked for, what is compared."""
    changes = [*asked.setting.changes, *system.sizes, *asked.changes, *system.changes, f"training.seed={seed}"]
    return draft(override(read_values(system.recipe), system.data), asked.files, changes)


def trained(recipe: Recipe, run: Path, asked: Asked) -> float:
    """Train, or go on, to the end; the seconds that it took."""
    started = time.monotonic()
    if (run / "model" / "manifest.json").exists():
        return 0.0

    def tell(step: int, scores: Mapping[str, Any]) -> None:
        asked.say(
            f"  step {step}/{recipe.training.updates}  " + "  ".join(f"{key} {value:.3f}" for key, value in scores.items())
        )

    stopped = train(recipe, run, resume=(run / "checkpoints").exists(), talk=False, callbacks=Callbacks(on_validation=tell))
    stop_with(stopped)
    return time.monotonic() - started


def stop_with(number: int | None) -> None:
    """The signal that stopped a training stops the experiment: what is unfinished is no result."""
    if number is not None:
        signal.raise_signal(number)
        raise KeyboardInterrupt  # where a process was told to ignore the signal


def compete(system: System, asked: Asked, seed: int, run: Path, judge: Judge) -> Row:
    """Train one system, judge it on every test set, and measure what it costs."""
    recipe = recipe_of(system, asked, seed)
    seconds = trained(recipe, run, asked)
    whole, model = with_corpus(recipe, run), load(run)
    row: Row = {"updates": recipe.training.updates, "training seconds": round(seconds, 1), **pace(whole, run)}
    for test, pairs in whole.data.test.items():
        rows = read_test(pairs, model.fields)[: asked.setting.values.get("test rows")]
        row |= judge(Examined(model, test, rows, pairs, whole))
    return row


def scores(tested: Examined, names: Sequence[str] = (), decoding: Decoding | None = None) -> Row:
    """The usual metrics, or those named, each called by its test set."""
    model, test, rows, pairs, _ = tested
    gold = None if pairs.alignment is None else read_links(pairs.alignment)[: len(rows)]
    boxes = None if pairs.boxes is None else read_boxes(pairs.boxes, [row[-1] for row in read_test(pairs, model.fields)])
    found, _ = evaluate(model, rows, gold, decoding, names=names, boxes=None if boxes is None else boxes[: len(rows)])
    return {f"{test} {score.name}": round(score.value, 4) for score in found}


def by_length(tested: Examined, metric: str = "bleu", ends: Sequence[int] = LENGTHS) -> list[tuple[int, int, float, float]]:
    """For sources of so many words at the most: how many there are, the metric of their outputs, and the loss per token."""
    model, rows = tested.model, tested.rows
    outputs, likelihoods = model.generate([row[0] for row in rows]), model.score([tuple(row) for row in rows])
    found = []
    for end, places in length_groups([row[0] for row in rows], ends).items():
        score = METRICS[metric]([outputs[place] for place in places], [rows[place][-1] for place in places]).value
        some = [likelihoods[place] for place in places]
        loss = -sum(one.log_prob for one in some) / sum(one.tokens for one in some)
        found.append((end, len(places), round(score, 3), round(loss, 4)))
    return found


def count(recipe: Recipe) -> int:
    """Parameters, with as many words as the recipe asks for."""
    config = configure(recipe.model)
    with torch.device("meta"):
        return sum(one.numel() for one in build(config, *shapes_of(recipe.data, config).values()).parameters())


def sized(system: System, key: str, budget: int, asked: Asked) -> System:
    """The same with the size at `key` that brings it closest to a budget of parameters."""
    low, high = 1, LARGEST
    while low < high:  # the largest size within the budget
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(at(system, key, middle, asked)) <= budget else (low, middle - 1)
    size = min((low, low + 1), key=lambda one: abs(count(at(system, key, one, asked)) - budget))
    return system._replace(changes=[*system.changes, f"{key}={size}"])


def at(system: System, key: str, size: int, asked: Asked) -> Recipe:
    return recipe_of(system._replace(changes=[*system.changes, f"{key}={size}"]), asked)
