"""Small models of the shapes that are no encoder with a decoder, and batches for them."""

import numpy as np
import torch

from regard.data.batching import Batch, Column, pad_to_multiple
from regard.models import build, configure
from regard.models.device import on_device

VOCABULARY, LABELS = 9, 4
BODIES = {
    "recurrent": {"kind": "recurrent", "embedding_size": 5, "hidden_size": 4, "layers": 2},
    "transformer": {
        "kind": "transformer",
        "hidden_size": 8,
        "feedforward_size": 12,
        "layers": 2,
        "attention": {"heads": 2},
        "dropout": 0.0,
    },
    "convolutional": {"kind": "convolutional", "embedding_size": 6, "hidden_size": 8, "longest": 16, "layers": 2},
    "bytenet": {"kind": "bytenet", "embedding_size": 5, "hidden_size": 4, "dilations": [1, 2], "sets": 1},
    "identity": {"kind": "identity", "embedding_size": 6},
}
TEXTS = {
    "recurrent": BODIES["recurrent"],
    "transformer": {**BODIES["transformer"], "output_bias": True},
    "transformer-learned": {**BODIES["transformer"], "positions": "learned", "longest": 16},
}
SOURCES = [[4, 5, 6, 7, 8], [8, 4], [5]]  # without their end marks
TAGS = [[1, 2, 3, 4, 1], [2, 2], [4]]  # counted from 1
WHOLE = [3, 1, 4]


def labeller(kind, encoder, **options):
    section = {"kind": kind, "encoder": BODIES[encoder], **options}
    return spread(build(configure(section), VOCABULARY, LABELS).eval())


def language_model(body):
    return spread(build(configure({"kind": "language_model", "decoder": TEXTS[body]}), VOCABULARY).eval())


def spread(model):
    """Nothing is zero, so that what is left out shows."""
    for parameter in model.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return model


def padded(rows, width, end=False):
    matrix = np.zeros((len(rows), width), np.int64)
    for row, values in enumerate(rows):
        matrix[row, : len(values) + end] = [*values, *[3] * end]
    return matrix


def marked(rows):
    return Column(padded(rows, max(map(len, rows)) + 1, end=True), np.array([len(row) + 1 for row in rows]))


def plain(rows):
    return Column(padded(rows, max(map(len, rows))), np.array([len(row) for row in rows]))


def batch_of(kind, rows=(0, 1, 2), multiple=None):
    sources = marked([SOURCES[row] for row in rows])
    columns = {
        "tagger": {"source": sources, "tags": plain([TAGS[row] for row in rows])},
        "classifier": {"source": sources, "label": Column(np.array([[WHOLE[row]] for row in rows])[:, 0], times=0)},
        "language_model": {"target": sources},
    }[kind]
    batch = Batch(columns)
    if multiple is not None:
        batch = pad_to_multiple(batch, *multiple, {"tagger": "tags", "classifier": "label", "language_model": "target"}[kind])
    return on_device(batch, torch.device("cpu"))
