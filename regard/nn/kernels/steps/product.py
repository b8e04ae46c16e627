"""y = φ(norm(x) Wᵀ + b) + norm'(z) for a few rows: one launch for what stands between two attentions of a decoding step."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from regard.nn.kernels.layers.norm import CENTRED, plain_add_norm
from regard.nn.kernels.machine import DTYPES, here, or_else, power_of_two
from regard.nn.kernels.steps.early import early
from regard.nn.linear import Projection, linear

FEW = 64  # rows up to which this is faster than a library's product and a norm beside it
ALONE = 2  # rows up to which that is so of a vocabulary too, and in float32
WIDEST = 1024  # elements of a row that is normalised
BLOCK = 512, 2048  # of a longer row, at a time; of one alone
KINDS = {None: 0, "relu": 1}


class Norm(NamedTuple):
    """g (x - mean) / √(variance + ε) + b, or without mean and b."""

    weight: Float[Tensor, "size"]
    offset: Float[Tensor, "size"] | None
    kind: str = "layer"
    eps: float = 1e-5

    def __call__(self, states: Float[Tensor, "rows size"]) -> Float[Tensor, "rows size"]:
        return plain_add_norm(states, None, None, self.weight, self.offset, kind=self.kind, eps=self.eps)[1]

    @property
    def code(self) -> int:
        return 1 + CENTRED[self.kind]


class Plus(NamedTuple):
    """What is added to a product."""

    states: Float[Tensor, "rows wide"]
    norm: Norm | None = None


def applies(states: Float[Tensor, "rows size"]) -> bool:
    """Whether this machine can, and it is worth it: one row or two of any numbers, some more of 16 bits."""
    rows = len(states)
    return here(states) and states.dtype in DTYPES and rows <= (FEW if states.element_size() == 2 else min(FEW, ALONE))


def product(
    states: Float[Tensor, "rows size"], layer: Projection, *, norm: Norm | None = None, kind: str | None = None,
    plus: Plus | None = None,
) -> Float[Tensor, "rows wide"]:  # fmt: skip
    """φ: relu or nothing."""
    (rows, size), wide = states.shape, len(layer.weight)
    normed = max(size if norm is not None else 0, wide if plus is not None and plus.norm is not None else 0)
    if not applies(states) or normed > WIDEST:
        return plain_product(states, layer, norm=norm, kind=kind, plus=plus)
    from regard.nn.kernels.steps.product_tiles import product

    out, block = (
        states.new_empty(rows, wide),
        power_of_two(size) if norm is not None else min(power_of_two(size), BLOCK[rows <= ALONE]),
    )
    other = None if plus is None else plus.norm
    r, n, warps = (1, 8, 4) if rows <= ALONE else (16, 16, 4 if block <= 512 else 8)
    n = n if wide <= 4096 else 2 * n
    product[(-(-wide // n), -(-rows // r))](
        states, *parts_of(norm, states), layer.weight, *or_else(states, layer.bias, None if plus is None else plus.states),
        *parts_of(other, states), out, rows, 1e-5 if norm is None else norm.eps, 1e-5 if other is None else other.eps,
        SIZE=size, WIDE=wide, C=power_of_two(wide), K=block, R=r, N=n, NORM=0 if norm is None else norm.code,
        SHIFTS=norm is not None and norm.offset is not None, BIASED=layer.bias is not None, KIND=KINDS[kind],
        ADDS=plus is not None, PNORM=0 if other is None else other.code,
        PSHIFTS=other is not None and other.offset is not None, num_warps=warps, **early(rows),
    )  # fmt: skip
    return out


def parts_of(norm: Norm | None, dummy: Tensor) -> list[Tensor]:
    return [dummy, dummy] if norm is None else or_else(dummy, norm.weight, norm.offset)


def plain_product(
    states: Float[Tensor, "rows size"], layer: Projection, *, norm: Norm | None = None, kind: str | None = None,
    plus: Plus | None = None,
) -> Float[Tensor, "rows wide"]:  # fmt: skip
    """The specification."""
    found = linear(states if norm is None else norm(states), *layer)
    found = functional.relu(found) if kind == "relu" else found
    if plus is None:
        return found
    return plus.states + found if plus.norm is None else plus.norm(plus.states) + found
