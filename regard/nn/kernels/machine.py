"""What kernels need to know of the machine they run on, and how tensors are handed to them."""

import functools
import importlib.util
import os

import torch
from jaxtyping import Float
from torch import Tensor

from regard.nn.outline import Outline

DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}  # and what Triton calls them


def able(inputs: Tensor) -> bool:
    """Whether a GPU can run our kernels on this tensor."""
    return inputs.is_cuda and inputs.dtype in DTYPES and available()


def here(tensor: Tensor) -> bool:
    """Whether our kernels take this tensor: on a GPU, interpreted, or not launched at all for an outline of a GPU's."""
    if isinstance(tensor, Outline):
        return tensor.planned == "cuda"
    return available() and (tensor.is_cuda or interpreted())


def interpreted() -> bool:
    """Whether Triton's kernels run on the CPU, step by step, for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@functools.cache
def available() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def processors(index: int) -> int:
    """Streaming multiprocessors of a GPU."""
    return torch.cuda.get_device_properties(index).multi_processor_count if not interpreted() else 1


def power_of_two(number: int) -> int:
    """The next one; 16 at least, which is what a tensor core multiplies."""
    return 1 << max(4, (number - 1).bit_length())


def or_else(dummy: Tensor, *parts: Tensor | None) -> list[Tensor]:
    """A kernel takes a tensor everywhere, and does not read those that are not there."""
    return [dummy if part is None else part for part in parts]


def with_whole_rows(tensor: Float[Tensor, "*rows size"]) -> Float[Tensor, "*rows size"]:
    """The elements of a row side by side in memory: the tensor itself, if they are."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def in_rows(tensor: Float[Tensor, "*rows size"]) -> Float[Tensor, "all size"]:
    """As a matrix of whole rows: a view, if it lies so."""
    return with_whole_rows(tensor.reshape(-1, tensor.shape[-1]))


def tile_for(width: int, elements: int, least: int = 4) -> dict[str, int]:
    """Columns and rows of a tile, and how many warps hold it, so many elements per thread. A row of one warp is summed
    without waiting for others."""
    columns = power_of_two(width)
    warps = min(max(columns // (32 * elements), least), 8)
    return {"C": columns, "R": max(1, 32 * elements * warps // columns), "num_warps": warps}


def programs_for(rows: int, tile: dict[str, int], most: int, like: Tensor) -> int:
    """At most so many per processor: each has sums of its own, and always of the same rows."""
    return max(1, min(-(-rows // tile["R"]), most * processors(like.device.index or 0)))
