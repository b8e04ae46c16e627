"""Choices where the sources are names of images."""

import itertools
import statistics
from pathlib import Path

from regard.choices.case import Machine, Values
from regard.choices.text import spelled, symbols
from regard.data.pictures import ENDINGS, Sizes, header, read_image
from regard.data.readers import read_rows
from regard.data.survey import Survey
from regard.errors import UserError
from regard.recipe import Pairs

BASE = "xu2015-small"
LOOKED_AT = 200  # images whose headers are read
HIGH, WIDE = 64, 512  # pixels of an image on its way into the model, at most
Told = tuple[str, Values, str]  # the rule, what it chose, why


def image_sizes(files: Pairs) -> list[Sizes]:
    """Of the first images that the sources name; none where they are no names of images that can be read."""
    folder = files.file_of("source").parent
    rows = (value for rows in read_rows(files) for value in rows.columns["source"])
    names = [folder / value for value in itertools.islice(rows, LOOKED_AT)]
    likely = [name for name in names if name.name.partition("#")[0].lower().endswith(ENDINGS)]
    if not likely or len(likely) < 0.9 * len(names):
        return []
    sizes = [size for name in likely if (size := size_of(name)) is not None]
    return sizes if len(sizes) > len(likely) / 2 else []


def size_of(name: Path) -> Sizes | None:
    try:
        if ".npy" in name.name:
            height, width, _ = read_image(name).shape  # vectors are arrays too, and no bytes
            return height, width
        return header(name)
    except UserError:
        return None


def fitted(sizes: list[Sizes]) -> Values:
    """As they are where all are small and alike; otherwise as high as we read them, and as wide as is usual among them."""
    height, width = sizes[0]
    if len(set(sizes)) == 1 and height <= HIGH and width <= WIDE:
        return {"data.fields.source": {"kind": "image", "height": height, "width": width}}
    usual = statistics.median(width / height for height, width in sizes)
    high = min(HIGH, int(statistics.median(height for height, _ in sizes)))
    return {"data.fields.source": {"kind": "image", "height": high, "width": max(8, min(WIDE, round(high * usual)))}}


def for_images(found: Survey, sizes: list[Sizes], machine: Machine) -> list[Told]:
    """What differs from the recipe for captions, and why."""
    target, most = found.target, 20_000 if machine.gpu else 4_000
    kind = "word" if symbols(target) or not spelled(target) else "character"
    tokens = target.words.mean if kind == "word" else target.characters.mean
    updates = int(min(max(40 * found.rows * (tokens + 1) / 1024, 500), most))
    counts = {"updates": updates, "warmup": updates // 16, "validate_every": updates // 16, "save_every": updates // 16}
    image, text = fitted(sizes), {"data.tokenizer": {"kind": kind, "size": 8000}}
    longest = int(target.characters.longest if kind == "character" else target.words.longest)
    return [
        ("images", image, f"the sources name images ({tell(sizes)}): a model for captions, as the recipe {BASE} has it"),
        ("tokenizer", text, f"{tokens:.0f} {kind}s in a target"),
        ("schedule", {f"training.{name}": number for name, number in counts.items()}, f"{found.rows:,} rows"),
        ("decoding", {"decoding.max_length": 2 * longest + 10}, f"the longest target has {longest} {kind}s"),
    ]


def tell(sizes: list[Sizes]) -> str:
    smallest, largest = min(sizes), max(sizes)
    told = f"{smallest[1]} x {smallest[0]}"
    return f"{told} pixels" if smallest == largest else f"{told} to {largest[1]} x {largest[0]} pixels"
