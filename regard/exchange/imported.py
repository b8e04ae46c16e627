"""What another program's model is as one of ours."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from regard.data.fields import Field
from regard.errors import DamagedError
from regard.models import build, configure
from regard.models.budget import Budget
from regard.models.directory import save_model
from regard.models.stored import CONFIG, SPARE, blamed_on
from regard.recipe import Recipe

CARD = """# {name}

Imported by `regard import` from a directory of the kind `{kind}`. Use it like any model of regard:

    regard generate THIS_DIRECTORY < input > output
    regard train THIS_DIRECTORY --source FILE --target FILE --run RUN training.start_from=THIS_DIRECTORY
"""


class Imported(NamedTuple):
    """A model that can be saved."""

    recipe: Recipe
    weights: dict[str, Tensor]
    fields: Mapping[str, Field]

    def check(self, directory: Path, file: Path) -> None:
        """DamagedError where the weights of `file` are not those that config.json describes; nothing is made to find out."""
        values = sum(tensor.numel() for tensor in self.weights.values())
        with blamed_on(directory / CONFIG), torch.device("meta"), Budget(SPARE * values, file.name):
            model = build(configure(self.recipe.model), *(field.shape for field in self.fields.values()))
        for name, tensor in model.state_dict().items():
            found = self.weights.get(name)
            if found is None or found.shape != tensor.shape:
                had = "absent" if found is None else list(found.shape)
                raise DamagedError(f"{file}: does not fit config.json: {name} is {had}, not {list(tensor.shape)}")

    def save(self, output: Path, name: str, kind: str) -> None:
        save_model(output, self.weights, self.recipe, self.fields, CARD.format(name=name, kind=kind))
