"""Columns whose values are files of their own: vectors in `.npy`, images."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from regard.bounds import Size
from regard.data.field import FEWEST, Field, FieldFitter, Problems, Shape
from regard.errors import DataError, UserError
from regard.recipe import Section


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


def read_array(path: Path) -> npt.NDArray[Any]:
    """A `.npy` file; nothing in it is executed."""
    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: not an array in .npy format: {error!s:.120}") from None
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: several arrays (.npz), where one in .npy format is needed")
    return array


def read_vectors(path: Path, elements: int | None = None) -> npt.NDArray[np.float32]:
    """[time, elements]."""
    array = read_array(path)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "fiu":
        raise DataError(f"{path}: numbers in two dimensions (time, elements) are needed, not {array.dtype} {list(array.shape)}")
    if elements is not None and array.shape[1] != elements:
        raise DataError(f"{path}: vectors of {array.shape[1]} elements, and training has {elements}")
    vectors = array.astype(np.float32)
    if not np.isfinite(vectors).all():
        raise DataError(f"{path}: not all values are finite numbers")
    return vectors


def read_image(path: Path, shape: tuple[int, ...] | None = None, scaled: bool = False) -> npt.NDArray[np.uint8]:
    """[height, width, channels], a byte each."""
    image = read_array(path) if path.suffix == ".npy" else read_picture(path, shape, scaled)
    image = image[..., None] if image.ndim == 2 else image
    if image.ndim != 3 or image.dtype != np.uint8 or not image.size:
        raise DataError(
            f"{path}: bytes (uint8) of height, width and channels are needed, not {image.dtype} {list(image.shape)}"
        )
    if shape is not None and image.shape != shape:
        raise DataError(f"{path}: an image of {list(image.shape)}, and training has {list(shape)} (height, width, channels)")
    return image


def read_picture(path: Path, shape: tuple[int, ...] | None, scaled: bool) -> npt.NDArray[np.uint8]:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise DataError(f"{path}: reading images needs Pillow: pip install pillow (or give .npy files)") from None
    try:
        with Image.open(path) as picture:
            grey = picture.mode in ("1", "L", "I", "F") if shape is None else shape[2] == 1
            flat = picture.convert("L" if grey else "RGB")
            return np.asarray(flat if shape is None or not scaled else flat.resize((shape[1], shape[0])), np.uint8)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path}: not an image that can be read: {error!s:.120}") from None
