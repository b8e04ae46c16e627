"""Images that differ from one pass over the rows to the next, and show the same. AUGMENTATIONS names what changes.

Nothing is turned or mirrored: a caption may say left or right.
"""

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from regard.data.batching import Batch
from regard.data.unknown_words import bits_of

Pixels = npt.NDArray[np.uint8]  # [height, width, channels]
Chance = np.random.Generator


def shift(image: Pixels, most: float, chance: Chance) -> Pixels:
    """By up to so many pixels down and across, and no further than what is empty, as all four corners are, can leave."""
    height, width, _ = image.shape
    rows, columns = (np.flatnonzero((image != image[0, 0]).any(axis=axes)) for axes in ((1, 2), (0, 2)))
    if not len(rows) or (image[[0, -1, -1], [-1, 0, -1]] != image[0, 0]).any():
        return image
    down = chance.integers(-min(int(most), rows[0]), min(int(most), height - 1 - rows[-1]) + 1)
    across = chance.integers(-min(int(most), columns[0]), min(int(most), width - 1 - columns[-1]) + 1)
    return np.roll(image, (down, across), axis=(0, 1))  # what goes round is empty


def brightness(image: Pixels, most: float, chance: Chance) -> Pixels:
    """All pixels times one number, 1 more or less so much."""
    return as_bytes(image * (1 + most * chance.uniform(-1, 1)))


def noise(image: Pixels, spread: float, chance: Chance) -> Pixels:
    """Each pixel and a number of its own, of this standard deviation; white is 1."""
    return as_bytes(image + 255 * spread * chance.standard_normal(image.shape, np.float32))


def as_bytes(values: npt.NDArray[np.floating]) -> Pixels:
    found: Pixels = np.rint(values).clip(0, 255).astype(np.uint8)
    return found


AUGMENTATIONS: dict[str, Callable[[Pixels, float, Chance], Pixels]] = {"shift": shift, "brightness": brightness, "noise": noise}


def augment(batch: Batch, amounts: Mapping[str, float], seed: int, step: int) -> Batch:
    """Every image of the batch: a function of (seed, step, row), in whatever batch a row is."""
    assert batch.rows is not None, "how an image is changed depends on its place in the store"
    columns = dict(batch.columns)
    for name, column in batch.columns.items():
        if column.times == 0 and column.values.dtype == np.uint8:
            each = zip(column.values, bits_of(seed, step, batch.rows), strict=True)
            columns[name] = column._replace(values=np.stack([changed(image, amounts, int(key)) for image, key in each]))
    return Batch(columns, batch.rows)


def changed(image: Pixels, amounts: Mapping[str, float], key: int) -> Pixels:
    chance = np.random.Generator(np.random.Philox(key=key))
    for name, amount in amounts.items():
        image = AUGMENTATIONS[name](image, amount, chance)
    return image
