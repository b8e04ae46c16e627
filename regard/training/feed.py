"""Where training gets its batches."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from regard.data.batching import Batch, Integers, collate
from regard.data.plan import BatchPlan
from regard.data.store import Store


@runtime_checkable
class Feed(Protocol):
    """What each step reads: which rows, how many tokens these have to be written, and the rows as a batch."""

    def rows(self, step: int) -> Integers:
        """Of a step, counted from 0."""

    def tokens(self, rows: Integers) -> int: ...

    def batch(self, rows: Integers) -> Batch:
        """Of arrays; all rows of a step, or some of them."""


class StoreFeed(NamedTuple):
    """Rows of a store in the order of a plan."""

    store: Store
    plan: BatchPlan
    writes: str  # the column that the loss is about

    def rows(self, step: int) -> Integers:
        return self.plan.batch(step)

    def tokens(self, rows: Integers) -> int:
        return self.store.positions(self.writes, rows)

    def batch(self, rows: Integers) -> Batch:
        return collate(self.store, rows)


class Piece(NamedTuple):
    rows: Integers
    weight: float


def pieces_of(rows: Integers, number: int) -> Sequence[Piece]:
    """A batch dealt out; a hand that stays empty gets a row that counts nothing, for every process must take part."""
    hands = [rows[index::number] for index in range(number)]
    return [Piece(hand, 1.0) if len(hand) else Piece(rows[:1], 0.0) for hand in hands]
