"""Decoding state: NamedTuples of batch-first tensors, mapped as one tree."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Int
from torch import Tensor

S = TypeVar("S")


class Lying(NamedTuple):
    """Tensors that stay where they lie as the hypotheses of a sentence are re-ordered; they move with sentences."""

    held: Any


def map_state(function: Callable[[Tensor], Tensor], state: S, lying: bool = True) -> S:
    """Apply `function` to every tensor of a (nested) state; also to those that lie still, unless told otherwise."""
    tree: Any = state
    if isinstance(tree, Lying) and not lying:
        return state
    if isinstance(tree, Tensor):
        return function(tree)  # type: ignore[return-value]
    if isinstance(tree, list):
        return [map_state(function, part, lying) for part in tree]  # type: ignore[return-value]
    if isinstance(tree, tuple):
        mapped = [map_state(function, part, lying) for part in tree]
        return type(tree)(*mapped) if hasattr(tree, "_fields") else tuple(mapped)  # type: ignore[return-value]
    return state  # None carries no batch dimension


def tensors_in(state: Any) -> list[Tensor]:
    """All of them, in the order in which `with_tensors` takes them."""
    found = list[Tensor]()

    def keep(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_state(keep, state)
    return found


def with_tensors(state: S, tensors: Iterable[Tensor]) -> S:
    """The same tree of these tensors."""
    given = iter(tensors)
    return map_state(lambda _: next(given), state)


def repeat_rows(state: S, times: int) -> S:
    """Give each row `times` neighbouring copies (one a hypothesis)."""
    return map_state(lambda tensor: tensor.repeat_interleave(times, dim=0), state)


def select_rows(state: S, rows: Int[Tensor, "rows"]) -> S:
    """Keep the given rows, in that order."""
    return map_state(lambda tensor: tensor[rows], state, lying=False)


def select_sentences(state: S, count: int, which: Int[Tensor, "chosen"]) -> S:
    """The rows of some of `count` sentences, which have as many each."""
    return map_state(lambda one: one.view(count, one.shape[0] // count, *one.shape[1:])[which].flatten(0, 1), state)


def join_sentences(one: S, other: Any) -> S:
    """The rows of the one, then those of the other."""
    return with_tensors(one, map(torch.cat, zip(tensors_in(one), tensors_in(other), strict=True)))


def fitted(state: S, like: Any) -> S:
    """What a State holds in a tree of other shapes, as far as both go."""
    pairs = zip(tensors_in(state), tensors_in(like), strict=True)
    return with_tensors(state, (one if one.shape == other.shape else in_corner(one, other) for one, other in pairs))


def in_corner(one: Tensor, other: Tensor) -> Tensor:
    corner = tuple(slice(min(sizes)) for sizes in zip(one.shape, other.shape, strict=True))
    found = other.clone()
    found[corner] = one[corner]
    return found


def detach_state(state: S) -> S:
    """The same state, through which no gradient flows back: the cut of truncated backpropagation through time."""
    return map_state(lambda tensor: tensor.detach(), state)
