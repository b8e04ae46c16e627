"""Columns of images: what is read from each file, and how it comes to the size of the others. FITS names the ways."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt

from regard.bounds import Size
from regard.data.field import Field, FieldFitter, Problems, Shape
from regard.data.files import Files, FirstFile, read_array, read_each, whole
from regard.errors import DataError, UserError
from regard.recipe import Section, choose, name_of

MOST = 1 << 26  # pixels of an image: a file of a few bytes may promise any number
ORIENTATION, QUARTERS = 0x0112, range(5, 9)  # EXIF's tag that says how a camera was held, and where it lay on its side
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".npy", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")  # of names of images
Pixels = npt.NDArray[np.uint8]  # [height, width, channels]
Sizes = tuple[int, int]  # height and width


def as_it_is(image: Pixels, sizes: Sizes) -> Pixels:
    """All images have one size."""
    return image


def scaled(image: Pixels, sizes: Sizes) -> Pixels:
    """To this height and width, whatever that does to its proportions."""
    if image.shape[:2] == sizes:
        return image
    from PIL import Image as Pillow

    flat = image[..., 0] if image.shape[2] == 1 else image
    found = np.asarray(Pillow.fromarray(flat).resize((sizes[1], sizes[0])), np.uint8)
    return found.reshape(*sizes, image.shape[2])


def padded(image: Pixels, sizes: Sizes) -> Pixels:
    """In the upper left corner of an image of this height and width; the rest is as its own first pixel."""
    height, width, _ = image.shape
    if height > sizes[0] or width > sizes[1]:
        return image
    found = np.broadcast_to(image[0, 0], (*sizes, image.shape[2])).copy()
    found[:height, :width] = image
    return found


FITS: dict[str, Callable[[Pixels, Sizes], Pixels]] = {"exact": as_it_is, "scale": scaled, "pad": padded}


class ImageConfig(Section):
    kind: Literal["image"] = "image"
    height: Size | None = None  # of all images; null: as the first one has it, or the largest where they are padded
    width: Size | None = None
    channels: Literal[1, 3] | None = None  # 1: grey, 3: colours; null: as the first image has them
    # how other images come to that size; null: scaled where a size is given, and otherwise all must have it
    fit: Annotated[str, name_of(FITS, "way of fitting images")] | None = None

    @property
    def way(self) -> str:
        return self.fit or ("exact" if self.height is None and self.width is None else "scale")


class Image(Files):
    """The name of an image file a row (what Pillow reads, `.npy` of bytes, or a row of one: `images.npy#17`), all of one size
    once they are read."""

    kind, form, Config, width = "image", "single", ImageConfig, "|u1"

    def __init__(self, height: int, width: int, channels: int, fit: str = "exact") -> None:
        self.features, self.fit = (height, width, channels), fit

    @classmethod
    def fitter(cls, config: ImageConfig) -> FieldFitter:
        def first(path: Path) -> Image:
            height, width, channels = read_image(path).shape
            return cls(config.height or height, config.width or width, config.channels or channels, config.way)

        return Largest(first) if config.way == "pad" and None in (config.height, config.width) else FirstFile(first)

    @classmethod
    def outline(cls, config: ImageConfig) -> Shape:
        """Whether patches fit 0 pixels is no question."""
        return Shape(cls.kind, (config.height or 0, config.width or 0, config.channels or 1))

    @property
    def shape(self) -> Shape:
        return Shape(self.kind, self.features)

    def encode(self, values: Sequence[str]) -> tuple[list[Any], Problems]:
        return read_each(values, lambda path: read_image(path, self.features, self.fit)[None])

    def shrunk(self, path: Path) -> tuple[float, float]:
        """Pixels of the file, across and down, that a pixel of what is read stands for."""
        if self.fit != "scale":
            return 1.0, 1.0
        height, width = header(path)
        return width / self.features[1], height / self.features[0]

    def facts(self) -> dict[str, Any]:
        height, width, channels = self.features
        other = {} if self.fit in ("exact", "scale") else {"fit": self.fit}  # models that were saved before know only these
        return {"height": height, "width": width, "channels": channels, "scaled": self.fit == "scale", **other}

    @classmethod
    def restore(cls, facts: Mapping[str, Any]) -> "Image":
        height, width, channels = (whole(facts[key]) for key in ("height", "width", "channels"))
        fit = facts.get("fit", "scale" if facts["scaled"] else "exact")
        if fit not in FITS:
            raise ValueError(f"no way of fitting images is called {fit!r:.40}")
        return cls(height, width, channels, fit)


class Largest(FirstFile):
    """As the first file that can be read, and as high and wide as any of them: of the others only the header is read."""

    def __init__(self, make: Callable[[Path], Image]) -> None:
        super().__init__(make)
        self.sizes = (0, 0)

    def add(self, values: Sequence[str], column: str) -> None:
        super().add(values, column)
        for value in values:
            try:
                height, width = header(Path(value))
            except UserError:  # a fault of its row
                continue
            self.sizes = max(height, self.sizes[0]), max(width, self.sizes[1])

    def finish(self) -> Field:
        found = super().finish()
        assert isinstance(found, Image)
        height, width, channels = found.features
        return Image(max(height, self.sizes[0]), max(width, self.sizes[1]), channels, found.fit)


def read_image(path: Path, shape: tuple[int, ...] | None = None, fit: str = "exact") -> Pixels:
    """[height, width, channels], a byte each; of this shape, if one is given."""
    image = read_array(path) if is_array(path) else read_picture(path, None if shape is None else shape[2])
    image = image[..., None] if image.ndim == 2 else image
    if image.ndim != 3 or image.dtype != np.uint8 or not image.size:
        raise DataError(
            f"{path}: bytes (uint8) of height, width and channels are needed, not {image.dtype} {list(image.shape)}"
        )
    if shape is None:
        return image
    image = in_channels(image, shape[2])
    image = choose(FITS, fit, "way of fitting images")(image, (shape[0], shape[1]))
    if image.shape != shape:
        too_large = "; it does not fit in there: raise height and width, or set fit=scale" if fit == "pad" else ""
        told = f"an image of {list(image.shape)}, and training has {list(shape)} (height, width, channels)"
        raise DataError(f"{path}: {told}{too_large}")
    return image


def in_channels(image: Pixels, channels: int) -> Pixels:
    """Grey as colours, or colours as grey: 0.299 red + 0.587 green + 0.114 blue, as Pillow has it (ITU-R 601)."""
    if image.shape[2] == 1 and channels == 3:
        return np.repeat(image, 3, axis=2)
    if image.shape[2] == 3 and channels == 1:
        grey: Pixels = np.rint(image @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)
        return grey[..., None]
    return image


def is_array(path: Path) -> bool:
    return path.suffix == ".npy" or ".npy#" in path.name


def header(path: Path) -> Sizes:
    """Height and width, without decoding it."""
    if is_array(path):
        height, width, *_ = read_array(path).shape
        return height, width
    with opened(path) as picture:
        turned = picture.getexif().get(ORIENTATION) in QUARTERS
        return (int(picture.width), int(picture.height)) if turned else (int(picture.height), int(picture.width))


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A picture of which Pillow has read the header, and no pixel yet: of what is no picture, or too large, a DataError."""
    try:
        from PIL import Image as Pillow
    except ImportError:
        raise DataError(f"{path}: reading images needs Pillow: pip install 'regard[images]' (or give .npy files)") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Pillow.DecompressionBombWarning)  # we count pixels ourselves
            picture = Pillow.open(path)
        with picture:
            if picture.width * picture.height > MOST:
                told = f"an image of {picture.width:,} x {picture.height:,} pixels, and {MOST:,} are the most"
                raise DataError(f"{path}: {told}: scale it down, or leave it out")
            yield picture
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except Pillow.DecompressionBombError:
        raise DataError(f"{path}: its header promises far more than the {MOST:,} pixels that are the most") from None
    except Exception as error:  # what decoders raise of broken files is listed nowhere
        raise DataError(f"{path}: not an image that can be read: {error!s:.120}") from None


def read_picture(path: Path, channels: int | None) -> Pixels:
    """As it is looked at: turned as its camera says, on white where it is transparent, 8 bits of those that have 16, the first
    picture of several."""
    with opened(path) as given:
        from PIL import Image as Pillow
        from PIL import ImageOps

        picture = ImageOps.exif_transpose(given)
        if picture.mode == "F" or picture.mode.startswith("I"):
            picture = Pillow.fromarray(in_eight_bits(np.asarray(picture), deep=picture.mode.startswith("I;16")))
        grey = picture.mode in ("1", "L", "LA", "La")
        if picture.has_transparency_data:
            picture = Pillow.alpha_composite(Pillow.new("RGBA", picture.size, "white"), picture.convert("RGBA"))
        picture = picture.convert("L" if grey else "RGB")
        return np.asarray(picture if channels is None else picture.convert("L" if channels == 1 else "RGB"), np.uint8)


def in_eight_bits(values: npt.NDArray[Any], deep: bool) -> Pixels:
    """Of 16, the upper ones. How many there are a file says, or its numbers do; of others nobody knows what is white."""
    most = 0xFFFF if deep or values.max() > 0xFF else 0xFF
    if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= most and (values == np.rint(values)).all()):
        raise ValueError("its numbers are not 0 to 255 or 0 to 65535: save it with 8 bits")
    return (values.astype(np.int64) >> (8 if most > 0xFF else 0)).astype(np.uint8)
