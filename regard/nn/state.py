"""Decoding state: NamedTuples of batch-first tensors, mapped as one tree."""

from collections.abc import Callable
from typing import Any, TypeVar

from jaxtyping import Int
from torch import Tensor

S = TypeVar("S")


def map_state(function: Callable[[Tensor], Tensor], state: S) -> S:
    """Apply `function` to every tensor of a (nested) state."""
    tree: Any = state
    if isinstance(tree, Tensor):
        return function(tree)  # type: ignore[return-value]
    if isinstance(tree, list):
        return [map_state(function, part) for part in tree]  # type: ignore[return-value]
    if isinstance(tree, tuple):
        mapped = [map_state(function, part) for part in tree]
        return type(tree)(*mapped) if hasattr(tree, "_fields") else tuple(mapped)  # type: ignore[return-value]
    return state  # None carries no batch dimension


def repeat_rows(state: S, times: int) -> S:
    """Give each row `times` neighbouring copies (one a hypothesis)."""
    return map_state(lambda tensor: tensor.repeat_interleave(times, dim=0), state)


def select_rows(state: S, rows: Int[Tensor, "rows"]) -> S:
    """Keep the given rows, in that order."""
    return map_state(lambda tensor: tensor[rows], state)


def detach_state(state: S) -> S:
    """The same state, through which no gradient flows back: the cut of truncated backpropagation through time."""
    return map_state(lambda tensor: tensor.detach(), state)
