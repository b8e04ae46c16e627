"""From a directory to a model in use: the shape of the model says what it can do."""

import sys
from pathlib import Path
from typing import TypeVar

import torch

from regard.decoding.engines import use
from regard.decoding.generator import TrainedGenerator
from regard.decoding.labelling import TrainedLabeller
from regard.decoding.language import TrainedLanguageModel
from regard.decoding.trained import Trained
from regard.errors import UserError
from regard.models import Generator, Labeller, LanguageModel, Model
from regard.models.device import choose_device
from regard.models.directory import Bundle, load_model
from regard.models.rounded import joined, split
from regard.nn.rounding import make_whole

Use = TypeVar("Use", bound=Trained)

# A shape of model, and what it is in use; the nearest class counts
IN_USE: dict[type[Model], type[Trained]] = {
    Generator: TrainedGenerator,
    LanguageModel: TrainedLanguageModel,
    Labeller: TrainedLabeller,
}


def used_as(model: type[Model]) -> type[Trained]:
    return next(IN_USE[shape] for shape in model.__mro__ if shape in IN_USE)


def can_give(use: type[Trained], need: str) -> bool:
    """Whether metrics may ask a model in this use for it; what no use lists is of somebody's own, and asked of all."""
    return need in use.gives or not any(need in other.gives for other in IN_USE.values())


def in_use(bundle: Bundle, device: torch.device | str = "cpu") -> Trained:
    """One that is stored in rounded weights writes by an engine that multiplies them as they are, on a CPU."""
    trained, rest = used_as(type(bundle.model))(bundle, device), [bundle.model]
    if bundle.precision != "float32" and isinstance(trained, TrainedGenerator) and trained.device.type == "cpu":
        rest = [getattr(bundle.model, part) for part in trained.use_engine(bundle.precision).own]
    for part in rest:
        make_whole(part)
    return trained


def load(path: str | Path, device: str = "auto", precision: str | None = None, engine: str | None = None) -> Trained:
    """A run or a model directory, ready for use. Of a run that still trains: its best weights so far, which is said.

    `precision`: outputs are written on a CPU by an engine, its weights in float32, bfloat16 or int8; with device="cuda" by the
    model in float32 or bfloat16. `engine`: by which one, an entry of ENGINES (docs/speed.md)."""
    fast = precision is not None or engine is not None
    chosen = choose_device("cpu" if device == "auto" and fast else device)
    bundle = load_model(Path(path), rounded=chosen.type == "cpu")
    if bundle.note:
        print(bundle.note, file=sys.stderr)
    trained = in_use(bundle, chosen)
    if not fast:
        return trained
    if not isinstance(trained, TrainedGenerator):
        asked = f"engine={engine}" if precision is None else f"precision={precision}"
        raise UserError(f"{path}: {asked} is for models that write outputs, and this one {trained.does}")
    told = use(engine or "native", trained, bundle, precision)
    trained.written_by = told if engine is not None else None
    return trained


def rounded_twin(path: Path, precision: str) -> Trained:
    """The model as it will be once it is stored in this precision."""
    bundle = load_model(path)
    weights = {name: tensor.clone() for name, tensor in bundle.model.state_dict().items()}
    bundle.model.load_state_dict(joined(split(weights, precision), precision))
    return in_use(bundle._replace(precision=precision))


def load_as(
    kind: type[Use], path: str | Path, device: str = "auto", precision: str | None = None, engine: str | None = None
) -> Use:
    """The same, of a model for this use; others are refused."""
    trained = load(path, device, precision, engine)
    if not isinstance(trained, kind):
        shape = type(trained.model).Config.model_fields["kind"].default
        raise UserError(
            f"{path}: this model (model.kind={shape}) {trained.does}, and one that {kind.does} is needed here; it is used by "
            f"`{trained.usage.replace('MODEL', str(path))}`"
        )
    return trained


def load_generator(
    path: str | Path, device: str = "auto", precision: str | None = None, engine: str | None = None
) -> TrainedGenerator:
    return load_as(TrainedGenerator, path, device, precision, engine)
