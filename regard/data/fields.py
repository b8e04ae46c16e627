"""What kinds of columns there are: how raw values become arrays, and back. FIELDS names them."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from regard.bounds import Size
from regard.data.files import read_image, read_vectors
from regard.data.readers import BadRows, read_rows
from regard.data.tokenizer import LARGEST, Tokenizer
from regard.data.tokenizers import fitter_of, load_tokenizer
from regard.data.untrusted import read_json
from regard.errors import DamagedError, RecipeError, UserError
from regard.problems import hint
from regard.recipe import Data, Section, choose, parse
from regard.recipe import Tokenizer as TokenizerSection

FORMAT = 1
FEWEST = 8  # entries of a vocabulary that nobody has made yet
Problems = dict[int, str]  # by row, from 0


class Shape(NamedTuple):
    """What a model has to know of a column."""

    kind: str
    sizes: tuple[int, ...]  # of the vocabulary; the elements of a vector; height, width and channels of an image

    @property
    def told(self) -> str:
        return f"{self.kind} of {' x '.join(f'{size:,}' for size in self.sizes)}"


class FieldFitter(ABC):
    """Sees the values of training rows once, in bounded memory, and becomes a field. A column may be one of several."""

    @abstractmethod
    def add(self, values: Sequence[str], column: str) -> None: ...

    @abstractmethod
    def finish(self) -> "Field": ...


class Field(ABC):
    """The values of one column."""

    kind: ClassVar[str]
    Config: ClassVar[type[Section]]
    form: ClassVar[str]  # of batching.FORMS
    marks: ClassVar[int] = 0  # positions that the form adds to each row
    like: ClassVar[str | None] = None  # the column whose rows have as many positions
    features: tuple[int, ...] = ()  # of each position
    largest: int | None = None  # integers are below it; None: not integers
    width: ClassVar[str] = "<f4"  # of what is no integer
    from_files: ClassVar[bool] = False  # whether a value is the name of a file that holds what a model reads

    @classmethod
    @abstractmethod
    def fitter(cls, config: Any) -> FieldFitter: ...

    @classmethod
    @abstractmethod
    def outline(cls, config: Any) -> Shape:
        """A small shape, for a model that is outlined before any row has been read."""

    @classmethod
    def located(cls, values: list[str], folder: Path) -> list[str]:
        """Names of files are relative to the folder of the file that names them."""
        return values

    @property
    @abstractmethod
    def shape(self) -> Shape: ...

    @abstractmethod
    def encode(self, values: Sequence[str]) -> tuple[list[Any], Problems]:
        """Each row's positions, and what is wrong with some."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """What `field.json` holds beside the kind."""

    @classmethod
    @abstractmethod
    def restore(cls, facts: Mapping[str, Any]) -> "Field": ...

    @property
    def description(self) -> str:
        return json.dumps({"format": FORMAT, "kind": self.kind, **self.facts()}, sort_keys=True) + "\n"

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.description.encode()).hexdigest()

    def save(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        (path / "field.json").write_text(self.description, encoding="utf-8")


class TextConfig(Section):
    kind: Literal["text"] = "text"
    tokenizer: TokenizerSection | None = None  # of this column alone; data.tokenizer otherwise


class Text(Field):
    """A text, cut by its tokenizer; END follows the last token."""

    kind, form, marks, Config = "text", "marked", 1, TextConfig

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.largest = tokenizer, len(tokenizer)

    @classmethod
    def fitter(cls, config: TextConfig) -> FieldFitter:
        assert config.tokenizer is not None, "configure_fields"
        return TextFitter(config.tokenizer)

    @classmethod
    def outline(cls, config: Any) -> Shape:
        return Shape(cls.kind, (FEWEST,))

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, (len(self.tokenizer),))

    def encode(self, values: Sequence[str]) -> tuple[list[Any], Problems]:
        return self.tokenizer.encode(values), {}

    def facts(self) -> dict[str, Any]:
        return self.tokenizer.facts()

    @classmethod
    def restore(cls, facts: Mapping[str, Any]) -> "Text":
        raise DamagedError("a text's field is its tokenizer")

    @property
    def digest(self) -> str:
        return self.tokenizer.digest

    def save(self, path: Path) -> None:
        self.tokenizer.save(path)


class TextFitter(FieldFitter):
    def __init__(self, section: TokenizerSection) -> None:
        self.fitter = fitter_of(section)

    def add(self, values: Sequence[str], column: str) -> None:
        self.fitter.add(values, column)

    def finish(self) -> Text:
        return Text(self.fitter.finish())


class LabelConfig(Section):
    kind: Literal["label"] = "label"


class Label(Field):
    """One of a set of names a row, numbered from 1: 0 is padding."""

    kind, form, what = "label", "single", "label"
    Config: ClassVar[type[Section]] = LabelConfig

    def __init__(self, names: Sequence[str]) -> None:
        self.names, self.largest = list(names), len(names) + 1
        self.numbers = {name: number for number, name in enumerate(names, start=1)}

    @staticmethod
    def split(value: str) -> list[str]:
        return [value.strip()]

    @classmethod
    def fitter(cls, config: Any) -> FieldFitter:
        return NamesFitter(cls)

    @classmethod
    def outline(cls, config: Any) -> Shape:
        return Shape(cls.kind, (FEWEST,))

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, (len(self.names),))

    def encode(self, values: Sequence[str]) -> tuple[list[Any], Problems]:
        rows = [[self.numbers.get(name, 0) for name in self.split(value)] for value in values]
        unknown = (row for row, numbers in enumerate(rows) if not all(numbers))
        return rows, {row: self.problem(values[row]) for row in unknown}

    def problem(self, value: str) -> str:
        name = next(name for name in self.split(value) if name not in self.numbers)
        return f"the {self.what} {name!r:.60} is not one of training's; {hint(name, self.names)}"

    def decode(self, numbers: Iterable[int]) -> str:
        return " ".join(self.names[number - 1] for number in numbers)

    def facts(self) -> dict[str, Any]:
        return {"names": self.names}

    @classmethod
    def restore(cls, facts: Mapping[str, Any]) -> "Label":
        names = facts["names"]
        if (
            not isinstance(names, list)
            or not names
            or not all(isinstance(name, str) and cls.split(name) == [name] for name in names)
        ):
            raise TypeError("its names are not such as a value is cut into")
        if len(set(names)) < len(names):
            raise ValueError("it has a name twice")
        return cls(names)


class TagsConfig(Section):
    kind: Literal["tags"] = "tags"


class Tags(Label):
    """A name for each token of the source, separated by spaces."""

    kind, form, like, what = "tags", "plain", "source", "tag"
    Config: ClassVar[type[Section]] = TagsConfig

    @staticmethod
    def split(value: str) -> list[str]:
        return value.split()


class NamesFitter(FieldFitter):
    """The most frequent name first."""

    def __init__(self, field: type[Label]) -> None:
        self.field, self.counts = field, Counter[str]()

    def add(self, values: Sequence[str], column: str) -> None:
        for value in values:
            self.counts.update(self.field.split(value))

    def finish(self) -> Label:
        return self.field(sorted(self.counts, key=lambda name: (-self.counts[name], name)))


class VectorsConfig(Section):
    kind: Literal["vectors"] = "vectors"


class Files(Field):
    """The name of a file a row."""

    from_files = True

    @classmethod
    def located(cls, values: list[str], folder: Path) -> list[str]:
        return [str(folder / value) for value in values]


class Vectors(Files):
    """The name of a `.npy` file a row: [time, elements], as many elements in each."""

    kind, form, Config = "vectors", "plain", VectorsConfig

    def __init__(self, elements: int) -> None:
        self.features = (elements,)

    @classmethod
    def fitter(cls, config: VectorsConfig) -> FieldFitter:
        return FirstFile(lambda path: cls(read_vectors(path).shape[1]))

    @classmethod
    def outline(cls, config: Any) -> Shape:
        return Shape(cls.kind, (FEWEST,))

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, self.features)

    def encode(self, values: Sequence[str]) -> tuple[list[Any], Problems]:
        return read_each(values, lambda path: read_vectors(path, self.features[0]))

    def facts(self) -> dict[str, Any]:
        return {"elements": self.features[0]}

    @classmethod
    def restore(cls, facts: Mapping[str, Any]) -> "Vectors":
        return cls(whole(facts["elements"]))


class ImageConfig(Section):
    kind: Literal["image"] = "image"
    height: Size | None = None  # to which images are scaled; as the first one is, otherwise
    width: Size | None = None


class Image(Files):
    """The name of an image file a row (`.npy` of bytes, or what Pillow reads): [height, width, channels], all of one size."""

    kind, form, Config, width = "image", "single", ImageConfig, "|u1"

    def __init__(self, height: int, width: int, channels: int, scaled: bool) -> None:
        self.features, self.scaled = (height, width, channels), scaled

    @classmethod
    def fitter(cls, config: ImageConfig) -> FieldFitter:
        def first(path: Path) -> Image:
            height, width, channels = read_image(path).shape
            scaled = config.height is not None or config.width is not None
            return cls(config.height or height, config.width or width, channels, scaled)

        return FirstFile(first)

    @classmethod
    def outline(cls, config: ImageConfig) -> Shape:
        return Shape(cls.kind, (config.height or 0, config.width or 0, 1))  # whether patches fit 0 pixels is no question

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, self.features)

    def encode(self, values: Sequence[str]) -> tuple[list[Any], Problems]:
        return read_each(values, lambda path: read_image(path, self.features, self.scaled)[None])

    def facts(self) -> dict[str, Any]:
        height, width, channels = self.features
        return {"height": height, "width": width, "channels": channels, "scaled": self.scaled}

    @classmethod
    def restore(cls, facts: Mapping[str, Any]) -> "Image":
        height, width, channels = (whole(facts[key]) for key in ("height", "width", "channels"))
        return cls(height, width, channels, bool(facts["scaled"]))


class FirstFile(FieldFitter):
    """The first file that can be read tells how all must be."""

    def __init__(self, make: Callable[[Path], Field]) -> None:
        self.make = make
        self.field: Field | None = None
        self.problem = "there is none"

    def add(self, values: Sequence[str], column: str) -> None:
        """Files that cannot be read are faults of their rows, which are told with their lines when they are encoded."""
        for value in values if self.field is None else ():
            try:
                self.field = self.make(Path(value))
                return
            except UserError as error:
                self.problem = f"the last was {error}"

    def finish(self) -> Field:
        if self.field is None:
            raise UserError(f"none of the files that the column names can be read: {self.problem}")
        return self.field


def read_each(paths: Sequence[str], read: Callable[[Path], Any]) -> tuple[list[Any], Problems]:
    """What is read from each file; nothing from those that cannot be."""
    rows, problems = list[Any](), Problems()
    for row, path in enumerate(paths):
        try:
            rows.append(read(Path(path)))
        except UserError as error:
            rows.append([])
            problems[row] = str(error)
    return rows, problems


def whole(value: object) -> int:
    if type(value) is not int or not 0 < value < 1 << 20:
        raise ValueError(f"{value!r:.40} is not a size")
    return value


FIELDS: dict[str, type[Field]] = {"text": Text, "label": Label, "tags": Tags, "vectors": Vectors, "image": Image}


def configure_fields(data: Data, columns: Mapping[str, str]) -> dict[str, Any]:
    """The typed form of `data.fields` for the columns of a model, each of its usual kind unless the recipe says another."""
    for name in data.fields:
        if name not in columns:
            raise RecipeError(f"data.fields.{name}: the model has no column {name!r}; {hint(name, columns)}")
    return {name: configure_field(name, {"kind": kind, **data.fields.get(name, {})}, data) for name, kind in columns.items()}


def configure_field(name: str, values: dict[str, Any], data: Data) -> Any:
    field = choose(FIELDS, values["kind"], f"field in data.fields.{name}.kind")
    config = parse(field.Config, values, where=f"data.fields.{name}")
    own = getattr(config, "tokenizer", data.tokenizer)
    return config if own is not None else config.model_copy(update={"tokenizer": data.tokenizer})


def outlines(configs: Mapping[str, Any]) -> list[Shape]:
    """Small shapes of these columns, for a model that is outlined before any row has been read."""
    return [FIELDS[config.kind].outline(config) for config in configs.values()]


def fit_fields(data: Data, configs: Mapping[str, Any]) -> dict[str, Field]:
    """A field for each column, in one pass over the training rows. Texts that share data.tokenizer have one vocabulary where
    it is `shared`."""
    assert data.train is not None
    fitters: dict[str, FieldFitter] = {}
    for name, config in configs.items():
        alike = [other for other in fitters if getattr(configs[other], "tokenizer", None) is data.tokenizer]
        shared = data.tokenizer.shared and alike and getattr(config, "tokenizer", None) is data.tokenizer
        fitters[name] = fitters[alike[0]] if shared else FIELDS[config.kind].fitter(config)
    bad = BadRows(data.on_bad_row)
    for rows in read_rows(data.train):
        bad.add(rows.faults)
        for name, fitter in fitters.items():
            located = FIELDS[configs[name].kind].located(rows.columns[name], data.train.file_of(name).parent)
            fitter.add(located, name)
    finished = {number: fitter.finish() for number, fitter in {id(fitter): fitter for fitter in fitters.values()}.items()}
    return {name: finished[id(fitter)] for name, fitter in fitters.items()}


def texts(source: Tokenizer, target: Tokenizer) -> dict[str, Field]:
    """The columns of most models."""
    return {"source": Text(source), "target": Text(target)}


def tokenizer_of(field: Field) -> Tokenizer:
    """Of a column that must be text."""
    if not isinstance(field, Text):
        raise UserError(f"a column of kind `text` is needed here, not `{field.kind}`")
    return field.tokenizer


def load_field(path: Path) -> Field:
    """The field that was saved there; DamagedError for what is not, to the last key, what one would save."""
    if not (path / "field.json").exists():
        return Text(load_tokenizer(path))
    facts = read_json(path / "field.json", LARGEST)
    try:
        if facts["format"] != FORMAT:
            raise ValueError(f"format {facts['format']!r:.40} is not {FORMAT}")
        field = FIELDS[facts["kind"]].restore(facts)
        if json.loads(field.description) != facts:
            raise ValueError("it says more or other things than a field of its kind")
    except DamagedError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        what = f"no key or kind {error}" if isinstance(error, KeyError) else str(error)
        raise DamagedError(f"{path / 'field.json'}: no field can be read from it: {what:.200}") from None
    return field
