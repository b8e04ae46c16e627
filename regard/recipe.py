"""The typed recipe: what to train, on what, and how. Unknown keys are refused with a hint; `key.path=value` overrides."""

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BeforeValidator, Field, ValidationError, model_validator

from regard.bounds import Amount, File, Seed, Size, Tokens, Width
from regard.bounds import Count as Count
from regard.bounds import Positive as Positive
from regard.bounds import Rate as Rate
from regard.errors import RecipeError as RecipeError
from regard.imports import advice
from regard.overrides import override as override
from regard.pairs import Pairs as Pairs
from regard.pairs import Section as Section
from regard.plain import CHARACTERS, from_yaml, reason, widest
from regard.problems import describe_all, hint
from regard.tables import choose as choose
from regard.tables import entry_of
from regard.tables import name_of as name_of
from regard.tables import one_of as one_of

S = TypeVar("S", bound=Section)


class Corpus(Section):
    """A data set that regard generates itself (`regard corpora` lists them)."""

    name: Annotated[str, entry_of("corpus")]
    seed: Seed = 1
    size: Annotated[int, Field(gt=0, le=10_000_000)] | None = None  # training pairs; the corpus has its own default


class Tokenizer(Section):
    """How text becomes tokens."""

    kind: Annotated[str, entry_of("tokenizer")] = "unigram"
    size: Annotated[int, Field(gt=0, le=10_000_000)] = 8000
    file: File | None = None  # one that is trained already, instead of kind and size: .model or tokenizer.json
    min_count: Positive = 1  # word and character: what training has fewer times is unknown
    shared: bool = False  # one vocabulary for both sides
    lowercase: bool = False
    longest: Size | None = None  # so many tokens of a text are read, and the rest of it is not; null: all


class Data(Section):
    """What to read, and how it is cut into batches."""

    train: Pairs | None = None
    valid: Pairs | None = None  # without it, `held_out` rows of train are kept aside
    test: dict[str, Pairs] = {}
    corpus: Corpus | None = None
    held_out: Positive | None = None  # null: a tenth of the rows, at most 1,000
    tokenizer: Tokenizer = Tokenizer()
    # what each column holds, such as {source: {kind: vectors}}; typed by regard.data.fields, which owns the kinds
    fields: dict[str, dict[str, Any]] = {}
    on_bad_row: Literal["stop", "skip"] = "stop"
    max_length: Size = 512  # tokens; longer rows are reported and left out
    batch_tokens: Tokens = 4096  # the padded size of one update's batch, on the longer side

    @model_validator(mode="after")
    def one_origin(self) -> "Data":
        if self.train is not None and self.corpus is not None:
            raise ValueError("name either `train` files or a `corpus`, not both")
        return self


class Risk(Section):
    """Training for an expected sentence score: α times the likelihood, and what the model's own outputs are worth."""

    objective: Annotated[str, entry_of("objective")] = "reinforce"
    reward: Annotated[str, entry_of("reward")] = "gleu"  # of one sentence, from 0 to 1
    search: Annotated[str, entry_of("search")] = "sample"  # where candidates come from
    candidates: Annotated[Width, Field(ge=2)] = 8  # a sentence
    sharpness: Annotated[Amount, Field(gt=0)] = 1.0  # minimum_risk: a candidate counts p ** sharpness
    likelihood: Amount = 0.017  # α; the paper's, for sums over sentences


class Training(Section):
    """How the parameters are found."""

    seed: Seed = 1
    updates: Positive = 10000
    minutes: Annotated[float, Field(ge=0.1, le=1e6)] | None = None  # end in time: with fewer updates if these take longer
    learning_rate: Annotated[float, Field(gt=0, le=100)] = 1e-3
    schedule: Annotated[str, entry_of("schedule")] = "inverse_sqrt"
    warmup: Count = 400
    betas: tuple[Rate, Rate] = (0.9, 0.98)
    epsilon: Annotated[float, Field(gt=0, le=1)] = 1e-8  # what Adam adds to the root of its second moment
    weight_decay: Annotated[float, Field(ge=0, le=100)] = 0.01
    clip: Annotated[float, Field(gt=0)] | None = 1.0  # the largest norm of the gradients; null: whatever it is
    label_smoothing: Rate = 0.1
    scheduled_sampling: Rate = 0.0  # chance that a step reads the model's own last word instead of the true one
    unknown_words: Rate = 0.0  # chance that a word both sides have is hidden and can only be copied; of labellers: any word
    made_up_stems: Rate = 0.0  # chance that a row has other letters, fewer or more, where its sides share some
    augment: dict[str, Amount] = {}  # how much images change from one pass to the next, by name
    penalties: dict[str, Amount] = {}  # on attention weights or on what layers give, by name
    start_from: File | None = None  # a run or a model directory whose weights and tokenizers to begin with
    vectors: dict[str, File] = {}  # by column: word vectors of others to begin with, in word2vec's or GloVe's text format
    freeze_vectors: bool = False  # whether these stay as they are
    frequencies: bool = False  # whether the output layer begins with how frequent each word is
    risk: Risk | None = None  # train for an expected sentence score
    entropy: Amount = 0.01  # hard attention's reward for staying undecided, a nat
    accumulate: Annotated[int, Field(gt=0, le=65_536)] = 1  # pieces of a batch, computed in turn: the same but for dropout
    precision: Literal["float32", "bfloat16"] = "float32"
    validate_every: Positive = 500
    validate_first: Positive | None = None  # one more validation, before the first of these
    validate_rows: Positive | None = None  # the first so many rows, of those to validate on; null: all of them
    # decides on the best checkpoints; equal scores are told apart by the loss
    validate_by: Annotated[str | None, entry_of("metric")] = None  # null: what is usual for the shape of model
    patience: Positive | None = 10  # validations without a better score before stopping; two after one that is perfect
    save_every: Positive = 500
    keep_last: Positive = 2
    average: Positive = 1  # the model is the mean of the best `average` checkpoints
    log_every: Positive = 50
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Annotated[int, Field(gt=0, le=1024)] | None = None  # of a CPU; null: as many as torch takes, one per core
    capture: bool = True  # on one GPU: batches of a shape that has come before are replayed as a CUDA graph
    deterministic: bool = False  # on a GPU: only kernels whose result is the same at every run (a CPU's are anyway)


def as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Phrases = Annotated[tuple[Annotated[str, Field(min_length=1, max_length=10_000)], ...], BeforeValidator(as_list)]


class Constraints(Section):
    """What the text of an output must be like; every input may have its own."""

    prefix: str | None = None  # the text that it begins with
    must: Phrases | None = None  # words and phrases that it has somewhere
    ban: Phrases | None = None  # words and phrases that it has not
    pattern: str | None = None  # a regular expression that all of it matches


class Decoding(Constraints):
    """How outputs are searched for."""

    beam: Width = 5
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 1.0  # α: log p is divided by the norm of the length
    length_norm: Annotated[str, entry_of("normalisation of length")] = "power"
    stop: Annotated[str, entry_of("stop rule")] = "best"  # when a beam has found enough
    groups: Width = 1  # a beam in so many parts, each of which avoids the words of those before it
    diversity: Amount = 0.5  # λ: log p that a word costs for each hypothesis of earlier groups that has just written it
    coverage_penalty: Amount = 0.0  # β for source words that the output has not looked at
    max_length: Size = 256
    max_ratio: Annotated[float, Field(gt=0, le=1000)] = 3.0  # an output ends after max_ratio * source + 10 tokens at the latest
    batch_tokens: Tokens = 4096
    cache: Annotated[str, entry_of("cache")] = "auto"  # what steps remember: in tensors that grow, or of fixed shapes (a GPU)
    replace_unknown: bool = False  # unknown words of outputs by the source words that were looked at for them
    min_length: Size | None = None  # tokens that an output has at least, without its end mark
    min_ratio: Annotated[float, Field(gt=0, le=1000)] | None = None  # the same, for each token of the source
    no_repeat_ngram: Size | None = None  # so many tokens in a row do not come twice
    only_words: File | None = None  # a file of all the words that outputs may have
    repetition_penalty: Annotated[float, Field(gt=0, le=1000)] | None = None  # θ log p for words that were written already

    @model_validator(mode="after")
    def has_room(self) -> "Decoding":
        if self.min_length is not None and self.min_length >= self.max_length:
            raise ValueError(f"min_length={self.min_length} must be less than max_length={self.max_length}")
        return self


# As they were written -> the SHA-256 of a file, null of a module
Imports = Annotated[
    dict[Annotated[str, Field(max_length=4096)], Annotated[str, Field(max_length=64)] | None], Field(max_length=100)
]


class Recipe(Section):
    """The whole. `model` is typed by regard.models, which owns the tables it chooses from."""

    about: str = ""
    data: Data = Data()
    model: dict[str, Any] = {}
    training: Training = Training()
    decoding: Decoding = Decoding()
    imports: Imports | None = None  # what `--import` named when this was trained


def parse(section: type[S], values: object, where: str = "") -> S:
    """Plain values -> a section, or one RecipeError that names the key."""
    try:
        return section.model_validate(values)
    except ValidationError as error:
        made_with = values.get("imports") if isinstance(values, Mapping) and "imports" in section.model_fields else None
        told = (describe_all(section, error.errors(), where), advice(made_with))
        raise RecipeError("; ".join(one for one in told if one)) from None


def built_in() -> dict[str, str]:
    """Name -> text of every recipe shipped with regard."""
    folder = resources.files("regard") / "recipes"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name[:-5])
    return {file.name.removesuffix(".yaml"): file.read_text(encoding="utf-8") for file in files}


def read(name_or_path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """A built-in recipe by name, or a YAML file by path; then `key.path=value` overrides."""
    return parse(Recipe, override(read_values(name_or_path), overrides))


def read_values(name_or_path: str | Path) -> dict[str, Any]:
    """A recipe's own values over those of the built-in recipe that its key `base` names, if it has one."""
    values = own_values(name_or_path)
    base = values.pop("base", None)
    if base is None:
        return values
    choose(built_in(), str(base), "base recipe")
    found: dict[str, Any] = merge(read_values(str(base)), values)
    return found


def merge(under: Any, over: Any) -> Any:
    """Sections over sections, key by key; one that names another `kind` takes the place of what was there."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    if "kind" in over and over["kind"] != under.get("kind"):
        return over
    return {**under, **{key: merge(under.get(key), value) for key, value in over.items()}}


def own_values(name_or_path: str | Path) -> dict[str, Any]:
    return plain(text_of(name_or_path), str(name_or_path))


def text_of(name_or_path: str | Path) -> str:
    """Of a built-in recipe, of a YAML file, or of the recipe that a run or a model directory keeps."""
    path, shipped = Path(name_or_path), built_in()
    if str(name_or_path) in shipped:
        return shipped[str(name_or_path)]
    if not path.exists() and path.suffix not in (".yaml", ".yml"):
        raise RecipeError(f"unknown recipe {str(name_or_path)!r} (and no .yaml file); {near(str(name_or_path), shipped)}")
    if path.is_dir() and not (path / "recipe.yaml").is_file():
        raise RecipeError(f"{path}: a directory without recipe.yaml; name a recipe, a .yaml file, a run or a model directory")
    try:
        with (path / "recipe.yaml" if path.is_dir() else path).open(encoding="utf-8") as file:
            return file.read(CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RecipeError(f"{path}: cannot read the recipe: {reason}") from None


def near(name: str, shipped: Mapping[str, str]) -> str:
    """All recipes whose names begin so, the smallest first; else the nearest name."""
    begun = sorted((one for one in shipped if one.startswith(name.lower())), key=lambda one: widest(read_values(one)["model"]))
    return f"did you mean {' or '.join(map(repr, begun))}?" if name and begun else hint(name, shipped)


def plain(text: str, where: str) -> dict[str, Any]:
    try:
        values = from_yaml(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        raise RecipeError(f"{where}{line}: not valid YAML: {reason(error)}") from None
    if isinstance(values, dict):
        return values
    raise RecipeError(f"{where}: a recipe is a mapping of keys to values")


def to_yaml(recipe: Recipe) -> str:
    return yaml.safe_dump(spoken(recipe, recipe.model_dump(mode="json")), sort_keys=False, allow_unicode=True)


def spoken(section: Any, values: Any) -> Any:
    """Values without the nulls that are there by default; a null that says something stays."""
    if isinstance(section, Mapping) and isinstance(values, dict):
        return {key: spoken(section.get(key), value) for key, value in values.items()}
    if not isinstance(section, Section):
        return values
    said = {key: field.default for key, field in type(section).model_fields.items()}
    return {
        key: spoken(getattr(section, key), value) for key, value in values.items() if value is not None or said[key] is not None
    }
