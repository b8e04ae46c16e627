"""Before a run writes anything: what its recipe as a whole asks for, and whether this machine can give it."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

import regard.corpora
import regard.training.schedules  # noqa: F401 - like those below, it registers a table that recipes name
from regard.data.augment import AUGMENTATIONS
from regard.data.fields import FIELDS, Shape, configure_fields, outlines
from regard.data.store import files_of
from regard.decoding.generator import TrainedGenerator
from regard.decoding.load import can_give, used_as
from regard.errors import RecipeError, UserError
from regard.evaluation.candidates import SEARCHES
from regard.evaluation.evaluate import SOURCES
from regard.evaluation.metrics import METRICS
from regard.memory import free_memory, spoken
from regard.models import MODELS, Labeller, Model, ModelConfig, build, configure
from regard.models.device import choose_device
from regard.models.penalties import asks_attention
from regard.overrides import flatten
from regard.recipe import Pairs, Recipe, Risk, choose
from regard.tables import check_names as check_names
from regard.training.expected import RISKS, refuse_hard_attention
from regard.training.objective import options_of

BYTES = 16  # of a parameter in training: its value, its gradient and AdamW's two moments
PARTS = 50_000  # tensors of parameters; a thousand layers of a Transformer have thirty thousand


def check(recipe: Recipe) -> None:
    """Names that are looked up late, parts that do not go together, more parameters than there is memory."""
    check_names(recipe)
    data, training = recipe.data, recipe.training
    looked = any(map(asks_attention, training.penalties))
    if data.train is not None:
        files_of(data.train, links="guided" in training.penalties)
    for name in training.augment:
        choose(AUGMENTATIONS, name, "change of images in training.augment")
    config = configure(recipe.model)
    check_metric(recipe, MODELS[config.kind])
    shapes = outlines(configure_fields(data, config.columns))
    for where, files in {"train": data.train, "valid": data.valid, **data.test}.items():
        if files is not None:
            need_columns(files, config.columns, f"data.{where}" if where in ("train", "valid") else f"data.test.{where}")
    if training.augment and not any(shape.kind == "image" for shape in shapes):
        raise RecipeError("training.augment changes images, and this model reads none: leave it out")
    model = fitting(config, shapes, choose_device(training.device, int(os.environ.get("LOCAL_RANK", "0"))))
    if "guided" in training.penalties and "shift" in training.augment:
        raise RecipeError("training.augment.shift moves images, and the boxes that guide attention stay: leave one of them out")
    if training.frequencies and training.start_from is not None:
        raise RecipeError("training.frequencies: the weights of training.start_from know them already; leave one of them out")
    if training.risk is not None:
        refuse_unread(model, shapes[0])
        refuse_hard_attention(model)
        refuse_outputs_of_a_beam(training.risk)
    asking = {
        "training.penalties": looked,
        "decoding.coverage_penalty": recipe.decoding.coverage_penalty > 0,
        f"training.validate_by={training.validate_by}": METRICS[training.validate_by or "loss"].needs == "links",
    }
    for key, asked in asking.items():
        if asked and not model.has_attention:
            raise RecipeError(f"{key} asks where the model looks, and this one has no attention: leave it out")
    for key in ("unknown_words", "made_up_stems"):
        labels = key == "unknown_words" and isinstance(model, Labeller) and FIELDS[shapes[0].kind].has_words
        if getattr(training, key) and not config.copies_words and not labels:
            raise RecipeError(
                f"training.{key} is about what both sides share and can be copied, and this model does not copy: set "
                f"model.decoder.copy_words=added, or leave training.{key} out"
            )
    model.part_names(options_of(training))  # it refuses what it has no use for


def need_columns(files: Pairs, columns: Iterable[str], where: str) -> None:
    """What the model reads and writes."""
    for column in columns:
        if column not in files.named:
            file = f"{where}.{column}=FILE or " if column in Pairs.model_fields else ""
            raise RecipeError(f"{where} names no `{column}`, which the model needs: {file}{where}.columns.{column}=PLACE")


def refuse_unread(model: Model, source: Shape) -> None:
    """Candidates are searched for anew from each source's tokens."""
    if not issubclass(used_as(type(model)), TrainedGenerator) or source.kind != "text":
        raise RecipeError("training.risk is for models that write a sequence for a text, and this one does not: leave it out")


def refuse_outputs_of_a_beam(risk: Risk) -> None:
    if RISKS[risk.objective].samples and SEARCHES[risk.search](0) is None:
        raise RecipeError(
            f"training.risk: `{risk.objective}` follows samples (search: sample); a beam's outputs go with `minimum_risk`"
        )


def check_metric(recipe: Recipe, model: type[Model]) -> None:
    """What is validated by: the model must give what it needs. A metric of alignments needs true ones; a corpus that is still
    to be generated may bring them."""
    by, data = recipe.training.validate_by or model.validate_by, recipe.data
    choose(SOURCES, METRICS[by].needs, "need of the metric in training.validate_by")
    for name in {by, by if recipe.training.risk is None else recipe.training.risk.reward}:
        METRICS[name].ready()
    if not can_give(use := used_as(model), METRICS[by].needs):
        fitting = ", ".join(name for name, metric in METRICS.items() if metric.needs in use.gives)
        raise RecipeError(
            f"training.validate_by={by} is not for this shape of model ({recipe.model.get('kind')}): take {fitting}"
        )
    if METRICS[by].needs == "links" and data.corpus is None and (data.valid is None or data.valid.alignment is None):
        raise RecipeError(f"training.validate_by={by} needs gold alignments: name a file of links in data.valid.alignment")


def fitting(config: ModelConfig, shapes: Sequence[Shape], device: torch.device) -> Model:
    """The model without its numbers, or a UserError if there is not even the memory to train its parameters."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
    try:
        model = outline(config, shapes, 4 * free // BYTES)
        number = sum(parameter.numel() for parameter in model.parameters())
        asked = f"{number:,} parameters"
    except TooManyError as error:
        number, asked = sys.maxsize, f"the model has {error}; parameters"
    if BYTES * number > free:
        takes = "" if number == sys.maxsize else f" ({spoken(BYTES * number)})"
        raise UserError(
            f"{asked} take {BYTES} bytes each in training{takes}, and {spoken(free)} of memory are free ({device}); "
            f"{largest(config)}"
        )
    return model


def largest(config: ModelConfig) -> str:
    """What to lower: the keys of a model section with the largest numbers."""
    numbers = {key: value for key, value in flatten(config.model_dump(mode="json")).items() if type(value) is int}
    keys = sorted(numbers, key=lambda key: -numbers[key])[:4]
    told = ", ".join(f"model.{key}={numbers[key]}" for key in keys)
    return f"lower the model's sizes (the largest are {told}) or data.tokenizer.size"


class TooManyError(Exception):
    """A model so large that it is not even outlined."""


def outline(config: ModelConfig, shapes: Sequence[Shape], most: int) -> Model:
    """The model on the device `meta`: shapes alone. Some numbers are counted here that the whole model has not (tied matrices,
    experts before they are stacked), so `most` is some times what there is room for."""
    numbers, parts = 0, 0

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal numbers, parts
        numbers, parts = numbers + (0 if parameter is None else parameter.numel()), parts + 1
        if numbers > most or parts > PARTS:
            raise TooManyError(f"more than {numbers - 1:,} parameters in {parts:,} matrices or vectors")

    handle = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"), Undrawn():
            return build(config, *shapes)
    except RuntimeError as error:
        if "overflow" not in str(error).lower():
            raise
        raise TooManyError("a matrix with more numbers than any machine can count") from None
    finally:
        handle.remove()


class Undrawn(TorchFunctionMode):
    """Nothing is filled with numbers: functions that change a tensor in its place give it back as it is."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, options = getattr(func, "__name__", ""), kwargs or {}
        if name.endswith("_") and not name.startswith("_") and name != "requires_grad_":
            return args[0] if args else options["tensor"]
        return func(*args, **options)
