"""Recurrent networks for inference: the same modules, each of whose products is laid out once."""

import copy

from torch import nn

from regard.engine.products import Pack, projection
from regard.nn.linear import Linear, LinearForInference

Made = dict[int, nn.Module]


def with_products(module: nn.Module, pack: Pack, made: Made | None = None) -> nn.Module:
    """The same module with every Linear inside rewritten. Weights are shared, `module` stays as it is."""
    made = {} if made is None else made
    if id(module) not in made:
        made[id(module)] = rewritten(module, pack, made)
    return made[id(module)]


def rewritten(module: nn.Module, pack: Pack, made: Made) -> nn.Module:
    if isinstance(module, Linear):
        return LinearForInference(module, pack(*projection(module)))
    found = copy.copy(module)
    vars(found)["_modules"] = {
        name: None if child is None else with_products(child, pack, made) for name, child in module._modules.items()
    }
    return found
