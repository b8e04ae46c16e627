"""Small models of the encoders and decoders that are not recurrent: each `tiny_FAMILY.py` beside this file has KINDS."""

import importlib
from pathlib import Path

from tiny import VOCABULARY

from regard.models import build, configure

FILES = sorted(path.stem for path in Path(__file__).parent.glob("tiny_*.py"))
KINDS = {f"{file[5:]}-{name}": values for file in FILES for name, values in importlib.import_module(file).KINDS.items()}


def small(values, vocabulary=VOCABULARY, scale=1.0):
    """A model of a recipe's `model` section, in use."""
    model = build(configure(values), vocabulary, vocabulary).eval()
    for parameter in model.parameters():
        parameter.data.mul_(scale)
    return model
