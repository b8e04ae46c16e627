"""Matrices as integers of eight bits and a scale for each row."""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map_only

TINY = 1e-30  # what a row of zeros is divided by
LARGEST = 127  # of the integers


def rounded(weight: Float[Tensor, "output input"]) -> tuple[Int8[Tensor, "output input"], Float[Tensor, "output"]]:
    """Integers Q from -127 to 127 and a scale s for each row: W ≈ s Q. Rounding s Q again gives the same."""
    if isinstance(weight, RoundedMatrix):
        return weight.integers[:], weight.scales
    scales = weight.abs().amax(dim=1).clamp_min(TINY) / LARGEST
    return (weight / scales[:, None]).round().clamp(-LARGEST, LARGEST).to(torch.int8), scales


Which = Int[Tensor, "*some"] | slice


class Rows(Protocol):
    """Rows of integers that lie elsewhere."""

    def __getitem__(self, which: Which) -> Int8[Tensor, "*some input"]: ...


class RoundedMatrix(Tensor):
    """s Q as a quarter of its bytes, for use without training. To every operation it is the float32 matrix, which is made for
    it and forgotten; words are looked up in Q. Nothing writes into it."""

    integers: "Int8[Tensor, 'output input'] | Rows"
    scales: Float[Tensor, "output"]

    @staticmethod
    def __new__(cls, integers: Int8[Tensor, "output input"], scales: Float[Tensor, "output"]) -> "RoundedMatrix":
        found = Tensor._make_wrapper_subclass(cls, integers.shape, dtype=scales.dtype)
        found.integers, found.scales = integers, scales
        return found

    def rows(self, which: Which = slice(None)) -> Float[Tensor, "*some input"]:
        return self.integers[which] * self.scales[which][..., None]

    def detach(self) -> "RoundedMatrix":
        return self

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        stays = device in (None, self.device) and dtype in (None, self.dtype)
        return self if stays else self.rows().to(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> "RoundedMatrix":
        return RoundedMatrix(self.integers[:].clone(), self.scales.clone())

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is functional.embedding:
            return args[1].rows(args[0])
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """PyTorch comes here for what is not above; on the first time it imports much, which takes 0.3 seconds."""
        if function._schema.is_mutable:
            raise NotImplementedError(f"{function}: a RoundedMatrix stays as it is")
        args, kwargs = tree_map_only(cls, cls.rows, (args, kwargs or {}))
        return function(*args, **kwargs)


def scaled(weight: Tensor, factor: float) -> Tensor:
    if isinstance(weight, RoundedMatrix):
        return RoundedMatrix(weight.integers[:], weight.scales * factor)
    return weight * factor


def rows_of(weight: Tensor, which: Int[Tensor, "some"]) -> Tensor:
    """Of a rounded matrix a rounded one."""
    if isinstance(weight, RoundedMatrix):
        return RoundedMatrix(weight.integers[which], weight.scales[which])
    return weight[which]


def by_rows(change: Callable[[list[Tensor]], Tensor], weights: list[Tensor]) -> Tensor:
    """Whole rows of several matrices moved by `change`. A rounded row stays as it is, wherever it is."""
    if not all(isinstance(one, RoundedMatrix) for one in weights):
        return change(weights)
    integers, scales = zip(*map(rounded, weights), strict=True)
    return RoundedMatrix(change([*integers]), change([one[:, None] for one in scales]).flatten())


def make_whole(module: nn.Module, recurse: bool = True) -> None:
    """For a module that multiplies by its weights again and again."""
    for part in module.modules() if recurse else [module]:
        own: dict[str, Any] = part._parameters
        for name, weight in own.items():
            if isinstance(weight, RoundedMatrix):
                own[name] = nn.Parameter(weight.rows(), requires_grad=False)
