"""How attention weights are read as an alignment: by which head, and at which step."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor

from regard.data.links import Link, links_from_weights
from regard.decoding.inputs import Pair as Pair
from regard.errors import UserError
from regard.models.directory import Reading

Sides = tuple[bool, bool]  # of the source and of the target
WORDS: Sides = (False, False)


class Alignment(NamedTuple):
    """Where each target word was looked for: words of both sides, or tokens where there are no spaces, and the weights
    between them."""

    source: list[str]
    target: list[str]
    weights: Float[np.ndarray, "target source"]
    end: Float[np.ndarray, " target"] | None = None  # what fell on the end mark of the source, which is no word

    def __repr__(self) -> str:
        size = f"{len(self.target)} target words x {len(self.source)} source words"
        return f"Alignment({' '.join(self.target)!r} from {' '.join(self.source)!r}, weights of {size})"

    @property
    def links(self) -> frozenset[Link]:
        return links_from_weights(self.weights)


def read_weights(weights: Float[Tensor, "batch heads steps source"], reading: Reading) -> Float[Tensor, "batch tokens source"]:
    """Row i is where the model looked for token i; steps are one more than tokens, for the last of them writes END."""
    looks = read_head(weights, reading)
    return looks[:, 1:] if reading.shift else looks[:, :-1]


def read_head(weights: Float[Tensor, "batch heads *source"], reading: Reading) -> Float[Tensor, "batch *source"]:
    """Of all steps, or of one."""
    if reading.head is not None and reading.head >= weights.shape[1]:
        raise UserError(f"this model has no head {reading.head}: its {weights.shape[1]} are counted from 0, over all layers")
    return weights.mean(dim=1) if reading.head is None else weights[:, reading.head]


def change_reading(reading: Reading, head: int | None, shift: int | None) -> Reading:
    """With another head (-1: the mean of all) or another step, where one is given."""
    given = {"head": None if head == -1 else head} if head is not None else {}
    return reading.model_copy(update=given | ({"shift": shift} if shift is not None else {}))


def readings(num_heads: int) -> list[Reading]:
    """All there are: the mean of the heads first, then each alone; at the step that writes a word, then at the next."""
    heads = [None, *range(num_heads)] if num_heads > 1 else [None]
    return [Reading(head=head, shift=shift) for head in heads for shift in (0, 1)]
