"""What a loss is differentiated by: the parameters, or what stands for them in a pass of 16 bits.

Autocast rounds a weight where it is used, and its gradient is widened again: two launches for each of a hundred weights, which
a GPU feels. Here a few launches do it for all.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from regard.nn.embedding import Embedding
from regard.nn.shared import Linear


class Leaves:
    """`leaves(model's inputs)` calls the model with the weights of its linear maps and tables rounded to `kind`, once each
    pass; everything else, and everything without a kind, is computed with as it is."""

    def __init__(self, model: nn.Module, kind: torch.dtype | None = None) -> None:
        self.model = model
        rounded = set() if kind is None else matrices(model)
        named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self.parameters = list(named.values())
        self.named = {
            name: torch.empty_like(parameter, dtype=kind).requires_grad_() if parameter in rounded else parameter
            for name, parameter in named.items()
        }
        self.tensors: Sequence[Tensor] = list(self.named.values())

    def refresh(self) -> None:
        """Round the parameters as they are now."""
        pairs = [(leaf, own) for leaf, own in zip(self.tensors, self.parameters, strict=True) if leaf is not own]
        if pairs:
            with torch.no_grad():
                torch._foreach_copy_([leaf for leaf, _ in pairs], [own for _, own in pairs])

    def __call__(self, *inputs: Any) -> Any:
        self.refresh()
        return functional_call(self.model, self.named, inputs)


def matrices(model: nn.Module) -> set[Tensor]:
    """What only products and tables read, in autocast's type. (Where one of our models has torch's Linear, it is exact.)"""
    return {module.weight for module in model.modules() if isinstance(module, Linear | Embedding)}
