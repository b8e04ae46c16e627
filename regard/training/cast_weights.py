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
from regard.nn.linear import Linear


class CastWeights:
    """`leaves(model's inputs)` calls the model with the weights of its linear maps and tables rounded to `kind`, once each
    pass; everything else, and everything without a kind, is computed with as it is."""

    def __init__(self, model: nn.Module, kind: torch.dtype | None = None) -> None:
        self.model = model
        rounded = set() if kind is None else matrices(model)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.tensors: Sequence[Tensor] = [
            torch.empty_like(one, dtype=kind).requires_grad_() if one in rounded else one for one in self.parameters
        ]
        leaf_of = dict(zip(self.parameters, self.tensors, strict=True))
        # a weight has as many places as modules hold it, and a module one place under however many names: `functional_call`,
        # asked to find shared weights itself, would put the rounded ones back in place of the exact ones
        self.places = {
            f"{prefix}.{name}" if prefix else name: leaf_of[parameter]
            for prefix, module in model.named_modules()
            for name, parameter in module.named_parameters(recurse=False)
            if parameter.requires_grad
        }

    def refresh(self) -> None:
        """Round the parameters as they are now."""
        pairs = [(leaf, own) for leaf, own in zip(self.tensors, self.parameters, strict=True) if leaf is not own]
        if pairs:
            with torch.no_grad():
                torch._foreach_copy_([leaf for leaf, _ in pairs], [own for _, own in pairs])

    def __call__(self, *inputs: Any) -> Any:
        self.refresh()
        return functional_call(self.model, self.places, inputs, tie_weights=False)


def matrices(model: nn.Module) -> set[Tensor]:
    """What only products and tables read, in autocast's type. (Where one of our models has torch's Linear, it is exact.)"""
    return {module.weight for module in model.modules() if isinstance(module, Linear | Embedding)}
