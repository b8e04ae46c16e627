"""Values that are files of their own: vectors in `.npy`, images."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regard.errors import DataError


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
