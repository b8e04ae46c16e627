"""Which tensors a model's file holds for each precision of its matrices. STORED names the ways; vectors are always float32."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from regard.nn.rounding import RoundedMatrix, rounded

SCALES = ":scales"  # after a matrix's name: a scale for each row of its integers
Weights = dict[str, Tensor]


class StoredAs(NamedTuple):
    """What a matrix becomes on disk, by name; and what is read there as float32 again."""

    split: Callable[[str, Tensor], Weights]
    join: Callable[[Weights], Weights]
    keep: Callable[[Weights], Weights] | None = None  # instead, if nothing is trained: as few bytes as on disk


def as_integers(name: str, matrix: Tensor) -> Weights:
    integers, scales = rounded(matrix)
    return {name: integers, name + SCALES: scales}


def from_integers(held: Weights) -> Weights:
    """W = s Q"""
    return {
        name: tensor.float() * held[name + SCALES][:, None] if name + SCALES in held else tensor
        for name, tensor in held.items()
        if not name.endswith(SCALES)
    }


def kept_integers(held: Weights) -> Weights:
    return {
        name: RoundedMatrix(tensor, held[name + SCALES]) if name + SCALES in held else tensor
        for name, tensor in held.items()
        if not name.endswith(SCALES)
    }


STORED: dict[str, StoredAs] = {
    "float32": StoredAs(lambda name, matrix: {name: matrix}, lambda held: held),
    "bfloat16": StoredAs(
        lambda name, matrix: {name: matrix.to(torch.bfloat16)},
        lambda held: {name: tensor.float() for name, tensor in held.items()},
    ),
    "int8": StoredAs(as_integers, from_integers, kept_integers),
}


def split(weights: Mapping[str, Tensor], precision: str) -> Weights:
    held: Weights = {}
    for name, tensor in weights.items():
        is_matrix = tensor.dim() == 2 and tensor.is_floating_point()
        held |= STORED[precision].split(name, tensor) if is_matrix else {name: tensor}
    return held


def joined(held: Weights, precision: str) -> Weights:
    return STORED[precision].join(held)
