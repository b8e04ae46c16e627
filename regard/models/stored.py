"""What a model's directory says of itself, compared part with part: config.json, the fields, the weights."""

import textwrap
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field as Bounds
from pydantic import model_validator
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from regard.data.fields import Field, Shape, load_field
from regard.data.untrusted import open_plain, read_json
from regard.errors import DamagedError, UserError
from regard.imports import advised
from regard.models import Model, ModelConfig, build, configure, refuse_two_vocabularies
from regard.models.budget import Budget
from regard.models.names import RENAMED, current_name, current_names
from regard.models.rounded import SCALES, STORED, joined, split
from regard.nn.rounding import make_whole
from regard.recipe import Count, Decoding, Imports, Section, name_of, parse

FORMAT: Literal[2] = 2  # 1: tensors had other names (names.py), and there were no fields
CONFIG, WEIGHTS = "config.json", "model.safetensors"
LARGEST = 1 << 20  # bytes of config.json
TYPES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int8: "I8"}  # what weights are written in, as safetensors calls it
SPARE = 3  # values that building makes for each one that it keeps, at most: experts are made one by one and then stacked
ColumnSize = Annotated[int, Bounds(gt=0, lt=1 << 24)]


class Form(NamedTuple):
    """What is known of a tensor without its values."""

    dtype: str
    shape: tuple[int, ...]


class Reading(Section):
    """Which of a model's attention weights are read as its alignment."""

    head: Count | None = None  # counted over all layers; None: the mean of all
    shift: Literal[0, 1] = 0  # 1: where the step after a word's own looked, whose query has read the word (Chen et al. 2020)


class StoredShape(Section):
    """What a model has to know of a column."""

    kind: str
    sizes: Annotated[tuple[ColumnSize, ...], Bounds(min_length=1, max_length=8)]

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, self.sizes)


class StoredConfig(Section):
    """What config.json holds."""

    format: Literal[1, 2] = FORMAT
    model_type: Literal["regard"] = "regard"
    architectures: tuple[str]
    model: dict[str, Any]
    decoding: Decoding
    reading: Reading = Reading()
    imports: Imports | None = None  # what `--import` named when the model was trained; told to people, never executed
    precision: Annotated[str, name_of(STORED, "precision")] = "float32"  # of its matrices in model.safetensors
    columns: dict[str, StoredShape]  # in the order that the model is built with

    @model_validator(mode="after")
    def one_kind(self) -> "StoredConfig":
        if self.model.get("kind") != self.architectures[0]:
            raise ValueError(f"architectures: {self.architectures[0]!r} is not the kind of the model")
        return self


class Stored(NamedTuple):
    """A model that can be built: its parts fit each other."""

    config: StoredConfig
    model: ModelConfig
    fields: dict[str, Field]


def read_config(path: Path) -> StoredConfig:
    values = read_json(path, LARGEST)
    if values.get("format") == 1 and "columns" not in values:
        values = upgraded(values)
    if values.get("format") not in (*RENAMED, FORMAT):
        raise DamagedError(f"{path}: not a model of this version (format {FORMAT})")
    with blamed_on(path):
        return parse(StoredConfig, values)


def upgraded(values: dict[str, Any]) -> dict[str, Any]:
    """What a model said of itself before there were fields: two texts, each with its vocabulary."""
    sizes = {name: values.pop(f"{name}_vocabulary", None) for name in ("source", "target")}
    columns = {name: {"kind": "text", "sizes": [size]} for name, size in sizes.items()}
    return {**values, "columns": columns}


def field_folder(directory: Path, name: str) -> Path:
    """Where a model keeps the field of a column; before there were fields, its tokenizer."""
    old = directory / f"{name}_tokenizer"
    return old if old.exists() else directory / "fields" / name


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
    """config.json and the fields of a model directory whose checksums hold, if they fit each other."""
    config = read_config(directory / CONFIG)
    with advised(config.imports):
        return read_parts(directory, config)


def read_parts(directory: Path, config: StoredConfig) -> Stored:
    path = directory / CONFIG
    with blamed_on(path):
        model = configure(config.model)
    if list(config.columns) != list(model.columns):
        raise DamagedError(f"{path}: columns {', '.join(config.columns)}, and the model has {', '.join(model.columns)}")
    fields = {name: load_field(field_folder(directory, name)) for name in config.columns}
    for name, field in fields.items():
        if field.shape != (said := config.columns[name].shape):
            folder = field_folder(directory, name)
            raise DamagedError(f"{folder}: {field.shape.told}, and config.json says {said.told}")
    with blamed_on(path):
        refuse_two_vocabularies(model, fields)
    return Stored(config, model, fields)


def build_stored(stored: Stored, directory: Path, device: str = "cpu") -> Model:
    """The model as it is before its weights are loaded, which will fit. Hardly more is made than the weights' file holds, and
    nothing on the device `meta`."""
    path = directory / WEIGHTS
    found = read_header(path)
    values = sum(torch.Size(form.shape).numel() for form in found.values())
    with blamed_on(directory / CONFIG), torch.device(device), Budget(SPARE * values, WEIGHTS):
        model = build(stored.model, *(column.shape for column in stored.config.columns.values()))
    wanted = forms(model.state_dict(), stored.config.precision)
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            problem = f"{name:.80} is {spoken(found.get(name))}, not {spoken(wanted.get(name))}"
            raise DamagedError(f"{path}: does not fit config.json: {problem}")
    return model


def forms(weights: Mapping[str, Tensor], precision: str) -> dict[str, Form]:
    """What a file of these weights holds; found out without rounding them, from none of the rows of each matrix."""
    found = dict[str, Form]()
    for name, tensor in weights.items():
        rows = tensor.shape[:1] if tensor.dim() == 2 else ()
        parts = split({name: tensor[:0] if rows else tensor}, precision)
        found |= {part: Form(TYPES[one.dtype], (*rows, *one.shape[len(rows) :])) for part, one in parts.items()}
    return found


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


def finite_weights(path: Path, wanted: Collection[str] | None = None) -> dict[str, Tensor]:
    """All tensors, or those that are wanted, every value a finite number. One is mapped after the other: less memory."""
    with safe_open(path, framework="pt") as file:
        names = {current_name(name): name for name in file.keys()}  # noqa: SIM118 - no dict
    return {name: finite(path, stored) for name, stored in names.items() if wanted is None or name in wanted}


def finite(path: Path, name: str) -> Tensor:
    with safe_open(path, framework="pt") as file:
        tensor: Tensor = file.get_tensor(name).clone()
    if tensor.is_floating_point() and not tensor.isfinite().all():
        raise DamagedError(f"{path}: damaged: not all values of {name:.80} are finite numbers")
    return tensor


def fill(model: Model, path: Path, precision: str, rounded: bool) -> None:
    """The weights of a model; `rounded`: in as few bytes as on disk where there is a way, for use without training. What is one
    tensor in the model (words, and the layer under the logits) stands in its file by each of its names, and is read once."""
    if not rounded or (keep := STORED[precision].keep) is None:
        model.load_state_dict(joined(finite_weights(path), precision))
        return
    places = model.state_dict(keep_vars=True)
    last = {id(tensor): name for name, tensor in places.items()}
    kept = keep(finite_weights(path, {name + end for name in last.values() for end in ("", SCALES)}))
    for module in model.modules():
        tables: tuple[dict[str, Any], ...] = module._parameters, module._buffers
        for table in tables:
            table |= {name: kept[last[id(one)]] for name, one in table.items() if id(one) in last}
        if not isinstance(module, nn.Linear | nn.Embedding):  # what an engine does not lay out
            make_whole(module, recurse=False)
