"""Checkpoints that can be trusted: safetensors and JSON in a sealed directory, found by scanning and verifying."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.data.sealed import sealed, sweep, verify
from regard.errors import DamagedError, UserError

Warn = Callable[[str], None]


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
    best: list[tuple[float, int]] = field(default_factory=list)  # (score, step), best first; higher is better
    waited: int = 0  # validations since the best one
    peak: float = 1.0  # share of the learning rate that plateaus have left
    journal: int = 0  # bytes
    finished: bool = False


def save(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress, facts: Mapping[str, Any]
) -> None:
    with sealed(folder / f"step-{progress.step:09d}", dict(facts)) as inside:
        save_file(tensors_of(model.state_dict()), inside / "model.safetensors")
        save_file(tensors_of(moments(model, optimizer)), inside / "optimizer.safetensors")
        (inside / "progress.json").write_text(json.dumps(asdict(progress)), encoding="utf-8")


def save_weights(folder: Path, model: nn.Module, step: int) -> None:
    with sealed(folder / f"step-{step:09d}", {}) as inside:
        save_file(tensors_of(model.state_dict()), inside / "model.safetensors")


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


def latest(folder: Path, warn: Warn) -> Path | None:
    """The newest checkpoint whose every byte is as it was written; damaged ones are named and passed over."""
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    damaged = 0
    for path in sorted(folder.glob("step-*"), reverse=True):
        try:
            verify(path)
            return path
        except DamagedError as error:
            damaged += 1
            warn(f"{error}; looking for an earlier checkpoint")
    if damaged:
        raise UserError(f"{folder}: none of its {damaged} checkpoints is whole; start a new run")
    return None


def restore(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, warn: Warn) -> Progress:
    """Weights, moments and progress from a verified checkpoint."""
    facts = verify(path)
    threads = torch.get_num_threads()
    if facts.get("threads", threads) != threads:
        warn(f"{path}: written with {facts['threads']} threads, going on with {threads}: results will differ in the last bits")
    load_weights(model, path)
    stored = load_file(path / "optimizer.safetensors")
    for name, parameter in model.named_parameters():
        for key in ("exp_avg", "exp_avg_sq", "step"):
            if (value := stored.get(f"{name}/{key}")) is not None:
                place = parameter.device if key != "step" or optimizer.defaults.get("fused") else "cpu"
                optimizer.state[parameter][key] = value.to(place)
    values = json.loads((path / "progress.json").read_text(encoding="utf-8"))
    return Progress(**{**values, "best": [tuple(pair) for pair in values["best"]]})


def load_weights(model: nn.Module, path: Path) -> None:
    try:
        model.load_state_dict(load_file(path / "model.safetensors"))
    except RuntimeError as error:
        reason = str(error).splitlines()[1].strip() if "\n" in str(error) else str(error)
        raise UserError(f"{path}: its weights do not fit this recipe's model: {reason}") from None


def mean_weights(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, summed in float64 so that the order does not matter."""
    total: dict[str, Tensor] = {}
    count = 0
    for path in paths:
        verify(path)
        for name, tensor in load_file(path / "model.safetensors").items():
            total[name] = total.get(name, torch.zeros((), dtype=torch.float64)) + tensor.double()
        count += 1
    if not count:
        raise UserError("no checkpoint was validated, so there are no weights to make a model of")
    return {name: (tensor / count).float() for name, tensor in total.items()}


def best_steps(folder: Path) -> set[int]:
    """The best steps that any of these checkpoints names: each may be the one to go on from."""
    states = [json.loads((path / "progress.json").read_text(encoding="utf-8")) for path in folder.glob("step-*")]
    return {step for state in states for _, step in state["best"]}


def keep(folder: Path, steps: Iterable[int]) -> None:
    """Remove the checkpoints of all other steps."""
    names = {f"step-{step:09d}" for step in steps}
    for path in folder.glob("step-*"):
        if path.name not in names:
            shutil.rmtree(path, ignore_errors=True)


def keep_newest(folder: Path, number: int) -> None:
    newest = sorted(folder.glob("step-*"), reverse=True)[:number]
    keep(folder, (int(path.name.removeprefix("step-")) for path in newest))
