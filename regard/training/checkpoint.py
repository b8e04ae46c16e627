"""Checkpoints that can be trusted: safetensors and JSON in a sealed directory, found by scanning and verifying."""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.data.sealed import remove, sealed, set_aside, sweep, verify
from regard.errors import DamagedError, UserError
from regard.models import Model
from regard.models.names import current_name, current_names
from regard.training.identity import compare
from regard.training.pacing import Pace

Warn = Callable[[str], None]
AFTER_PERFECT = 2  # validations that wait for a lower loss where the score can get no better
CARRIED = "carried.safetensors"  # the state with which the last batch ended, of a model that goes on from there
NAME = re.compile(r"step-(\d{9,})")


class Best(NamedTuple):
    """A validation whose weights are kept."""

    score: float  # higher is better, whatever the metric; -inf where it was not a number
    step: int
    loss: float = math.inf  # tells equal scores apart; older versions did not keep it

    def rank(self, nothing: float = -math.inf) -> tuple[float, float]:
        """Scores up to `nothing` are those of outputs that are as good as none: they are alike, and the loss tells more."""
        score = max(self.score, nothing) if math.isfinite(self.score) else -math.inf  # max(x, NaN) is x: no such bound
        return score, -math.inf if math.isnan(self.loss) else -self.loss

    def beats(self, best: Sequence["Best"], nothing: float = -math.inf) -> bool:
        """Whether it is a number and better than the first of these."""
        return math.isfinite(self.score) and (not best or self.rank(nothing) > best[0].rank(nothing))


@dataclass
class Progress:
    """All that changes while training beside weights and moments. The order of data and the random numbers are pure
    functions of (seed, step), so the step is their whole state."""

    step: int = 0
    skipped: int = 0  # updates left out because something was not finite
    skipped_in_a_row: int = 0
    window_loss: float = 0.0  # since the last journal row
    window_parts: dict[str, float] = field(default_factory=dict)  # of what is minimised beside it
    window_tokens: int = 0
    best: list[Best] = field(default_factory=list)  # best first
    waited: int = 0  # validations since the best one
    lowest: float | None = None  # loss of all validations
    risen: int = 0  # validations since it
    peak: float = 1.0  # share of the learning rate that plateaus have left
    journal: int = 0  # bytes
    finished: bool = False
    pace: Pace | None = None  # another number of updates than the recipe's, to end in time
    seconds: float = 0.0  # that the run has taken, where it has `minutes`

    def out_of_patience(self, patience: int | None, perfect: float) -> bool:
        """Whether so many validations brought neither a better score nor a lower loss: an error rate can be lowest before
        anything is learned, for empty outputs. `perfect` is the score that nothing beats."""
        if patience is None:
            return False
        reached = bool(self.best) and self.best[0].score == perfect
        return self.waited >= min(AFTER_PERFECT, patience) if reached else min(self.waited, self.risen) >= patience


class Checkpoints:
    """Those of a run, by step. Only whole ones count; strays in the folder are named and left alone."""

    def __init__(self, folder: Path, warn: Warn) -> None:
        self.folder, self.warn = folder, warn
        self.best_of: dict[int, set[int]] = {}  # of each whole one: the steps of the best weights that it names

    def latest(self) -> Path | None:
        """The newest one whose every byte is as it was written, after a look at all of them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        sweep(self.folder)
        damaged = 0
        for path in sorted(path for path in self.folder.iterdir() if not path.name.startswith(".")):
            if (match := NAME.fullmatch(path.name)) is None:
                self.warn(f"{path}: no checkpoint of this run; it is left alone")
                continue
            try:
                verify(path)
                self.best_of[int(match[1])] = {one.step for one in read_progress(path).best}
            except DamagedError as error:
                damaged += 1
                self.warn(f"{error}; this checkpoint does not count")
        if damaged and not self.best_of:
            raise UserError(f"{self.folder}: none of its {damaged} checkpoints is whole; start a new run")
        return self.folder / name(max(self.best_of)) if self.best_of else None

    def save(self, model: Model, optimizer: torch.optim.Optimizer, progress: Progress, facts: Mapping[str, Any]) -> None:
        place = self.folder / name(progress.step)
        if place.exists() and progress.step not in self.best_of:
            self.warn(f"{place}: not whole; it is kept as {set_aside(place).name}")
        with sealed(place, dict(facts)) as inside:
            write_tensors(inside / "model.safetensors", model.state_dict())
            write_tensors(inside / "optimizer.safetensors", moments(model, optimizer))
            if model.carried is not None:
                write_tensors(inside / CARRIED, {"carried": model.carried})
            (inside / "progress.json").write_text(json.dumps(asdict(progress)), encoding="utf-8")
        self.best_of[progress.step] = {one.step for one in progress.best}

    def rotate(self, number: int, best: Path) -> None:
        """Keep the newest `number`, and in the folder `best` the weights that any of them names."""
        for step in sorted(self.best_of)[:-number]:
            del self.best_of[step]
            remove(self.folder / name(step))
        named = {name(step) for steps in self.best_of.values() for step in steps}
        for path in best.iterdir() if best.exists() else ():
            if NAME.fullmatch(path.name) and path.name not in named:
                remove(path)


def name(step: int) -> str:
    return f"step-{step:09d}"


def save_weights(folder: Path, model: nn.Module, step: int) -> None:
    with sealed(folder / name(step), {}) as inside:
        write_tensors(inside / "model.safetensors", model.state_dict())


def write_tensors(path: Path, named: Mapping[str, Tensor]) -> None:
    try:
        save_file(tensors_of(named), path)
    except SafetensorError as error:  # its own words for an error of the system, such as a full disk
        if (code := re.search(r"os error (\d+)", str(error))) is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1]))) from None


def tensors_of(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Each tensor alone: tied or flattened weights share memory, files do not."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in named.items()}


def moments(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's tensors under the names of the parameters they belong to."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore(
    path: Path, model: Model, optimizer: torch.optim.Optimizer, warn: Warn, identity: Mapping[str, Any]
) -> tuple[Progress, dict[str, Any]]:
    """Weights, moments and progress from a verified checkpoint of the same run; what of its recipe has changed since."""
    facts = verify(path)
    changed = compare(facts.get("identity", identity), identity, path)
    threads = torch.get_num_threads()
    if facts.get("threads", threads) != threads:
        warn(f"{path}: written with {facts['threads']} threads, going on with {threads}: results will differ in the last bits")
    load_weights(model, path)
    if model.carried is not None:
        model.carried.copy_(load_file(path / CARRIED)["carried"])
    tensors = load_file(path / "optimizer.safetensors")
    stored = {
        f"{current_name(name)}/{key}": tensors[f"{name}/{key}"] for name, _, key in (one.rpartition("/") for one in tensors)
    }
    for name, parameter in model.named_parameters():
        for key in ("exp_avg", "exp_avg_sq", "step"):
            if (value := stored.get(f"{name}/{key}")) is not None:
                place = parameter.device if key != "step" or optimizer.defaults.get("fused") else "cpu"
                optimizer.state[parameter][key] = value.to(place)
    return read_progress(path), changed


def read_progress(path: Path) -> Progress:
    try:
        values = json.loads((path / "progress.json").read_bytes())
        best = [Best(float(score), int(step), *map(float, loss)) for score, step, *loss in values["best"]]
        pace = None if values.get("pace") is None else Pace(*values["pace"])
        return Progress(**{**values, "best": best, "pace": pace})
    except (ValueError, TypeError, KeyError, RecursionError):
        raise DamagedError(f"{path / 'progress.json'}: not the progress of a run") from None


def load_weights(model: nn.Module, path: Path) -> None:
    try:
        model.load_state_dict(current_names(load_file(path / "model.safetensors")))
    except RuntimeError as error:
        reason = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise UserError(f"{path}: its weights do not fit this recipe's model: {reason}") from None


def whole_weights(folder: Path, best: Sequence[Best], warn: Warn) -> list[Best]:
    """Those of the best whose weights are as they were written."""
    whole = []
    for one in best:
        try:
            verify(folder / name(one.step))
            whole.append(one)
        except DamagedError as error:
            warn(f"{error}; these weights do not count among the best")
    return whole


def mean_weights(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, summed in float64 so that the order does not matter."""
    total: dict[str, Tensor] = {}
    count = 0
    for path in paths:
        verify(path)
        for name, tensor in current_names(load_file(path / "model.safetensors")).items():
            total[name] = total.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
        count += 1
    if not count:
        raise UserError("no checkpoint was validated, so there are no weights to make a model of")
    return {name: (tensor / count).float() for name, tensor in total.items()}
