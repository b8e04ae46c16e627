"""Choices where the sources are names of images."""

import itertools
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from regard.choices.case import Case, Values
from regard.choices.rules import BAD_ROWS, Rule
from regard.choices.text import longest_tokens, metric, spelled, symbols
from regard.data.pictures import ENDINGS, Sizes, header, read_image
from regard.data.readers import read_rows
from regard.errors import UserError
from regard.recipe import Pairs

BASE = "xu2015-small"
LOOKED_AT = 200  # images whose headers are read
SENTENCE = 6  # words of a target from which on BLEU tells
ROWS = 32  # images of a batch, each with its label
HIGH, WIDE = 64, 512  # pixels of an image on its way into the model, at most


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


def fitted(case: Case) -> Values:
    """As they are where all are small and alike; otherwise as high as we read them, and as wide as is usual among them."""
    sizes = case.images
    height, width = sizes[0]
    if len(set(sizes)) == 1 and height <= HIGH and width <= WIDE:
        return {"data.fields.source": {"kind": "image", "height": height, "width": width}}
    usual = statistics.median(width / height for height, width in sizes)
    high = min(HIGH, int(statistics.median(height for height, _ in sizes)))
    return {"data.fields.source": {"kind": "image", "height": high, "width": max(8, min(WIDE, round(high * usual)))}}


def words(case: Case) -> Values:
    target = case.found.target
    kind = "word" if symbols(target) or not spelled(target) else "character"
    return {} if "data.tokenizer" in case.chosen else {"data.tokenizer": {"kind": kind, "size": 8000}}


def schedule(case: Case) -> Values:
    """Forty passes over the rows, within limits."""
    tokens, most = case.tokens("target"), 20_000 if case.machine.gpu else 4_000
    updates = int(min(max(40 * case.found.rows * tokens / 1024, 500), most))
    counts = {"updates": updates, "warmup": updates // 16, "validate_every": updates // 16, "save_every": updates // 16}
    return {f"training.{name}": number for name, number in counts.items()}


def score(case: Case) -> Values:
    """Of captions BLEU; of a few words an error rate, for these have no four words in a row."""
    return {"training.validate_by": "bleu"} if case.tokens("target") - 1 >= SENTENCE else metric(case)


def tell(sizes: Sequence[Sizes]) -> str:
    smallest, largest = min(sizes), max(sizes)
    told = f"{smallest[1]} x {smallest[0]}"
    return f"{told} pixels" if smallest == largest else f"{told} to {largest[1]} x {largest[0]} pixels"


def regions(case: Case) -> Values:
    """Three blocks of convolutions, each of half the height and width as long as four pixels are left; the largest of each
    element over all regions tells the label."""
    size = case.chosen["data.fields.source"]
    halvings = max(0, min(3, int(math.log2(min(size["height"], size["width"]) / 4))))
    read = {"kind": "convolutions", "channels": [16, 32, 64], "strides": [2] * halvings + [1] * (3 - halvings), "norm": "group"}
    return {
        "model.encoder": {"kind": "identity", "embedding_size": 64, "input": read},
        "model.pooling": "max",
        "model.dropout": 0.1,
    }


def label_schedule(case: Case) -> Values:
    """Thirty passes over the rows, within limits; an image has two tokens, the second an end mark."""
    updates = int(min(max(30 * case.found.rows / ROWS, 300), 20_000 if case.machine.gpu else 3_000))
    counts = {"updates": updates, "warmup": updates // 16, "validate_every": updates // 16, "save_every": updates // 16}
    return {
        "data.batch_tokens": 2 * ROWS, **{f"training.{name}": number for name, number in counts.items()},
        "training.learning_rate": 0.003, "training.unknown_words": 0.0, "training.patience": 6,
    }  # fmt: skip


# In this order: what stands below may look at what was chosen above
IMAGE_LABEL_CHOICES: dict[str, Rule] = {
    "images": Rule(fitted, lambda case: f"the sources name images ({tell(case.images)})", "as for captions"),
    "model": Rule(
        regions, lambda case: "convolutions, and the largest of each of their elements over all regions",
        "shapes of the largest things in 2,000 generated pictures: accuracy 100.0 on 500 others, one run, 45 s of a CPU",
    ),
    "schedule": Rule(
        label_schedule, lambda case: "it stops earlier when six validations bring nothing better",
        "the same run: 1,287 of 1,875 updates",
    ),
}  # fmt: skip
IMAGE_CHOICES: dict[str, Rule] = {
    "bad rows": BAD_ROWS,
    "images": Rule(
        fitted,
        lambda case: f"the sources name images ({tell(case.images)}): a model for captions, as the recipe {BASE} has it",
        "scenes of 64 x 64 pixels: exact 99.6; formulas are wider than they are high",
    ),
    "tokenizer": Rule(
        words, lambda case: f"{case.tokens('target') - 1:.0f} {case.unit('target')} in a target", "as for the targets of texts"
    ),
    "schedule": Rule(schedule, lambda case: f"{case.found.rows:,} rows", "4,000 updates at most without a GPU"),
    "metric": Rule(
        score, lambda case: "it moves for targets of this length",
        "300 generated pictures (`a red square`): BLEU was 0.0 at every validation while all outputs were right",
    ),
    "decoding": Rule(
        lambda case: {"decoding.max_length": 2 * int(longest_tokens(case, "target")) + 10},
        lambda case: f"the longest target has {longest_tokens(case, 'target'):,.0f} {case.unit('target')}",
        "the recipe's 40 would cut formulas",
    ),
}  # fmt: skip
