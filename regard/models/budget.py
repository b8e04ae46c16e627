"""A limit on what building a model may make: a stranger's config.json asks for what it likes."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.errors import UserError

DRAWN = {function for name, function in vars(torch.nn.init).items() if name.endswith("_") and not name.startswith("_")}
INITIAL = {*DRAWN, Tensor.normal_, Tensor.uniform_}


class Budget(TorchFunctionMode):
    """Counts the values of tensors that are made of numbers alone (`zeros(3, 4)`: 12), each before it is made. Initial weights
    are not drawn: others are loaded, and memory that nobody writes to is not taken."""

    def __init__(self, values: int, holder: str) -> None:
        super().__init__()
        self.left, self.holder = values, holder

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in INITIAL:
            return args[0] if args else (kwargs or {})["tensor"]
        given = [*args, *(kwargs or {}).values()]
        if not any(isinstance(one, Tensor) for one in given):
            self.left -= math.prod(numbers(given))
        if self.left < 0:
            raise UserError(f"it describes a model of more values than {self.holder} holds")
        return function(*args, **(kwargs or {}))


def numbers(given: Iterable[Any]) -> Iterator[int]:
    """All whole numbers among the arguments, those of tuples and lists too."""
    for one in given:
        if isinstance(one, list | tuple):
            yield from numbers(one)
        elif isinstance(one, int) and not isinstance(one, bool):
            yield one
