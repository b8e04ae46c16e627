"""Where training gets its batches."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from regard.data.augment import augment
from regard.data.batching import Batch, Integers, collate
from regard.data.lanes import Lanes
from regard.data.made_up_stems import MadeUpStems
from regard.data.plan import BatchPlan
from regard.data.store import Store
from regard.data.unknown_words import hide_source, hide_words
from regard.recipe import Training

Change = Callable[[Batch, int], Batch]  # of a batch at a step


@runtime_checkable
class Feed(Protocol):
    """What each step reads: which rows, how many tokens these have to be written, and the rows as a batch."""

    def rows(self, step: int) -> Integers:
        """Of a step, counted from 0."""

    def tokens(self, rows: Integers) -> int: ...

    def batch(self, rows: Integers, step: int) -> Batch:
        """Of arrays; all rows of a step, or some of them."""


class StoreFeed(NamedTuple):
    """Rows of a store in the order of a plan."""

    store: Store
    plan: BatchPlan
    writes: str  # the column that the loss is about
    changes: Sequence[Change] = ()  # of what a batch shows, from one pass over the rows to the next

    def rows(self, step: int) -> Integers:
        return self.plan.batch(step)

    def tokens(self, rows: Integers) -> int:
        return self.store.positions(self.writes, rows)

    def batch(self, rows: Integers, step: int) -> Batch:
        batch = collate(self.store, rows)
        for change in self.changes:
            batch = change(batch, step)
        return batch


def feed_of(store: Store, plan: BatchPlan | Lanes, writes: str, training: Training) -> Feed:
    """With made-up stems first, so that their letters can be hidden too."""
    if isinstance(plan, Lanes):
        return plan
    changes: list[Change] = [MadeUpStems(store, training.made_up_stems, plan.seed)] if training.made_up_stems else []
    if training.augment:
        changes.append(lambda batch, step: augment(batch, training.augment, plan.seed, step))
    if training.unknown_words:
        hide = hide_words if "copies" in store.columns else hide_source
        changes.append(lambda batch, step: hide(batch, training.unknown_words, plan.seed, step))
    return StoreFeed(store, plan, writes, changes)


class Piece(NamedTuple):
    rows: Integers
    weight: float


def pieces_of(rows: Integers, number: int) -> Sequence[Piece]:
    """A batch dealt out; a hand that stays empty gets a row that counts nothing, for every process must take part."""
    hands = [rows[index::number] for index in range(number)]
    return [Piece(hand, 1.0) if len(hand) else Piece(rows[:1], 0.0) for hand in hands]
