"""One long text in lanes side by side, cut into windows: what a model reads that goes on from batch to batch."""

import numpy as np
import numpy.typing as npt

from regard.data.batching import Batch, Column, Integers
from regard.data.store import Sequences, random_bits
from regard.data.tokenizer import END, PAD


class LongText:
    """These rows of a column one after the other, END after each; any places of it are found without reading the others."""

    def __init__(self, side: Sequences, rows: npt.NDArray[np.int64]) -> None:
        self.side, self.rows = side, rows
        lengths = side.lengths[rows].astype(np.int64)
        self.begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths + 1)])  # where each row does

    def __len__(self) -> int:
        return int(self.begins[-1])

    def __getitem__(self, places: Integers) -> Integers:
        rows, which = np.unique(np.searchsorted(self.begins, places, side="right") - 1, return_inverse=True)
        begins, lengths = self.side.lengths.spans(self.rows[rows])
        within = places - self.begins[rows][which]
        inside, found = within < lengths[which], np.full(places.shape, END, np.int64)
        stored = (begins[which] + within)[inside]
        cuts = np.flatnonzero(np.diff(stored, prepend=-2) != 1)  # where the next one does not stand right behind
        found[inside] = self.side.pages.stretches(stored[cuts], np.diff(cuts, append=len(stored)))
        return found


class Lanes:
    """Each step has one window of every lane. A lane is a stretch of the text, its windows follow one another, and an epoch
    begins at another place of the text, which (seed, epoch) decides; from its end it goes on at its beginning. A row is a
    window of a lane: step * lanes + lane. All windows have one size; the last ones are filled up with PAD."""

    def __init__(self, text: LongText, lanes: int, window: int, seed: int) -> None:
        self.text, self.seed = text, seed
        self.lanes = min(lanes, len(text))
        self.length = -(-len(text) // self.lanes)
        self.windows = -(-self.length // window)
        self.window = -(-self.length // self.windows)

    def __len__(self) -> int:
        """Steps of an epoch."""
        return self.windows

    def rows(self, step: int) -> Integers:
        return step * self.lanes + np.arange(self.lanes)

    def places(self, rows: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """[rows, window]: counted from where the epoch begins, and which are there: not those after the end of a lane."""
        step, lane = np.divmod(rows, self.lanes)
        within = (step % self.windows)[:, None] * self.window + np.arange(self.window)
        places = lane[:, None] * self.length + within
        return places, (within < self.length) & (places < len(self.text))

    def tokens(self, rows: Integers) -> int:
        return int(self.places(rows)[1].sum())

    def batch(self, rows: Integers, step: int) -> Batch:
        """`target` is to be written; `lanes` says of each row which lane it is of (from 1), which token stands before, and
        whether the lane's state goes on."""
        epoch, window = divmod(step, self.windows)
        begin = int(random_bits(self.seed, epoch).random_raw() % len(self.text))
        (places, there), lane = self.places(rows), rows % self.lanes
        target = np.where(there, self.text[(begin + places) % len(self.text)], PAD)
        before = self.text[(begin + places[:, 0] - 1) % len(self.text)]
        lanes = np.stack([lane + 1, before, np.full(len(rows), window > 0)], axis=1)
        return Batch({"target": Column(target), "lanes": Column(lanes, times=0)}, rows)
