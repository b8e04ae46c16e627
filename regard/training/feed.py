"""Where training gets its batches."""

from typing import NamedTuple, Protocol

from regard.data.batching import Batch, Integers, collate
from regard.data.plan import BatchPlan
from regard.data.store import Store


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
