"""Tensors that have a shape and a dtype and no elements: what a plan computes with.

Tables of paths choose for an outline as they would on the device that it is planned for. What launches a kernel, or needs
elements, is a `functools.singledispatch` function of its first tensor; `planning/paths.py` says what it does for an outline.
"""

from typing import Any

import torch
from torch import Tensor


class Outline(Tensor):
    """It says that it lies on a CPU, where autocast and views work without a GPU."""

    shape_only: Tensor  # on the device `meta`; views share its storage as the views of a real tensor do
    planned: str  # the device that it is planned for: cpu or cuda

    @staticmethod
    def __new__(cls, inner: Tensor, planned: str) -> "Outline":
        facts = {"dtype": inner.dtype, "device": torch.device("cpu")}
        made: Outline = torch.Tensor._make_wrapper_subclass(cls, inner.shape, inner.stride(), inner.storage_offset(), **facts)  # type: ignore[arg-type]
        made.shape_only, made.planned = inner, planned
        return made

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"Outline({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise RuntimeError(f"{func}: an outline is computed with inside `Drawing` only")


def device_of(tensor: Tensor) -> str:
    """The type of the device whose paths this tensor takes."""
    return tensor.planned if isinstance(tensor, Outline) else tensor.device.type
