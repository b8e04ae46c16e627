"""What a model's directory says of itself, compared part with part: config.json, the tokenizers, the weights."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field, model_validator
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from regard.data.tokenizers import Tokenizer, load_tokenizer
from regard.data.untrusted import open_plain, read_json
from regard.errors import DamagedError, UserError
from regard.models import Model, ModelConfig, build, configure, refuse_two_vocabularies
from regard.models.budget import Budget
from regard.models.names import RENAMED, current_names
from regard.recipe import Count, Decoding, Section, parse

FORMAT: Literal[2] = 2  # 1: tensors had other names (names.py)
CONFIG, WEIGHTS = "config.json", "model.safetensors"
LARGEST = 1 << 20  # bytes of config.json
TYPES = {torch.float32: "F32"}  # what weights are written in, as safetensors calls it
SPARE = 3  # values that building makes for each one that it keeps, at most: experts are made one by one and then stacked
Vocabulary = Annotated[int, Field(gt=0, lt=1 << 24)]


class Form(NamedTuple):
    """What is known of a tensor without its values."""

    dtype: str
    shape: tuple[int, ...]


class Reading(Section):
    """Which of a model's attention weights are read as its alignment."""

    head: Count | None = None  # counted over all layers; None: the mean of all
    shift: Literal[0, 1] = 0  # 1: where the step after a word's own looked, whose query has read the word (Chen et al. 2020)


class StoredConfig(Section):
    """What config.json holds."""

    format: Literal[1, 2] = FORMAT
    model_type: Literal["regard"] = "regard"
    architectures: tuple[str]
    model: dict[str, Any]
    decoding: Decoding
    reading: Reading = Reading()
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary

    @model_validator(mode="after")
    def one_kind(self) -> "StoredConfig":
        if self.model.get("kind") != self.architectures[0]:
            raise ValueError(f"architectures: {self.architectures[0]!r} is not the kind of the model")
        return self


class Stored(NamedTuple):
    """A model that can be built: its parts fit each other."""

    config: StoredConfig
    model: ModelConfig
    source: Tokenizer
    target: Tokenizer


def read_config(path: Path) -> StoredConfig:
    values = read_json(path, LARGEST)
    if values.get("format") not in (*RENAMED, FORMAT):
        raise DamagedError(f"{path}: not a model of this version (format {FORMAT})")
    with blamed_on(path):
        return parse(StoredConfig, values)


@contextmanager
def blamed_on(path: Path) -> Iterator[None]:
    """What is wrong with a recipe's values is here wrong with a file; said shortly, for a stranger may have written it."""
    try:
        yield
    except DamagedError:
        raise
    except UserError as error:
        raise DamagedError(f"{path}: {textwrap.shorten(str(error), 600, placeholder=' ...')}") from None


def read_stored(directory: Path) -> Stored:
    """config.json and the tokenizers of a model directory whose checksums hold, if they fit each other."""
    path = directory / CONFIG
    config = read_config(path)
    with blamed_on(path):
        model = configure(config.model)
    source, target = load_tokenizer(directory / "source_tokenizer"), load_tokenizer(directory / "target_tokenizer")
    for side, tokenizer, size in (("source", source, config.source_vocabulary), ("target", target, config.target_vocabulary)):
        if len(tokenizer) != size:
            raise DamagedError(f"{directory / f'{side}_tokenizer'}: {len(tokenizer)} tokens, and config.json says {size}")
    with blamed_on(path):
        refuse_two_vocabularies(model, source, target)
    return Stored(config, model, source, target)


def build_stored(stored: Stored, directory: Path, device: str = "cpu") -> Model:
    """The model as it is before its weights are loaded, which will fit. Hardly more is made than the weights' file holds, and
    nothing on the device `meta`."""
    path = directory / WEIGHTS
    found = read_header(path)
    values = sum(torch.Size(form.shape).numel() for form in found.values())
    with blamed_on(directory / CONFIG), torch.device(device), Budget(SPARE * values, WEIGHTS):
        model = build(stored.model, stored.config.source_vocabulary, stored.config.target_vocabulary)
    wanted = {name: Form(TYPES[tensor.dtype], tuple(tensor.shape)) for name, tensor in model.state_dict().items()}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            problem = f"{name:.80} is {spoken(found.get(name))}, not {spoken(wanted.get(name))}"
            raise DamagedError(f"{path}: does not fit config.json: {problem}")
    return model


def spoken(form: Form | None) -> str:
    return "absent" if form is None else f"{form.dtype} {list(form.shape)}"


def read_header(path: Path) -> dict[str, Form]:
    """The tensors, by their names of today, of a safetensors file whose header describes every byte behind it."""
    open_plain(path).close()
    try:
        with safe_open(path, framework="pt") as file:
            parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no dict
            forms = {name: Form(part.get_dtype(), tuple(part.get_shape())) for name, part in parts.items()}
    except SafetensorError as error:
        raise DamagedError(f"{path}: damaged: {error}") from None
    if len(found := current_names(forms)) != len(forms):
        raise DamagedError(f"{path}: damaged: a tensor stands there twice, by its name and by an older one")
    return found


def finite_weights(path: Path) -> dict[str, Tensor]:
    """All tensors, every value a finite number."""
    weights = current_names(load_file(path))
    for name, tensor in weights.items():
        if not tensor.isfinite().all():
            raise DamagedError(f"{path}: damaged: not all values of {name:.80} are finite numbers")
    return weights
