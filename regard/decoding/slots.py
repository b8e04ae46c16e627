"""Continuous batching: sentences stand side by side in slots. Where outputs are finished, others are taken in; where none wait,
those that go on move together."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.data.batching import Batch, Column
from regard.decoding.hypothesis import Found
from regard.decoding.recorded import Recorded, Sources
from regard.decoding.strides import Given, Going, Strides, power_of_two, require_shapes, sizes
from regard.nn.state import fitted, join_sentences, select_sentences

STEPS = 4  # of a stride, after which a search may be found to be finished
SHARE = 4  # others are taken in when one of so many outputs is finished
BEHIND = {"cuda": 1, "cpu": 0}  # strides that a device may be asked for before the host knows what came of them


class Waiting(NamedTuple):
    """A sentence whose output has not begun."""

    owner: int
    limit: int  # tokens that its output may have


Encode = Callable[[Sequence[int]], Given]  # of sentences by their number; as wide for all


class Slots(NamedTuple):
    """The first slots are those of `sentences`; the rest repeat one of them, so that few shapes come again and again."""

    sentences: list[Waiting]
    taken: list[int]  # words that each output has at most
    given: Given
    going: Going
    room: int

    @property
    def number(self) -> int:
        return len(self.given.lengths)


NOTHING: Any = ()
NOBODY = Slots([], [], Given(None, torch.zeros(0)), Going(None, torch.zeros(0)), 0)


class Later:
    """The values of a tensor, which the device is not kept waiting for."""

    def __init__(self, tensor: Tensor) -> None:
        self.values, self.done = tensor, None
        if tensor.is_cuda:
            self.values, self.done = torch.empty_like(tensor, device="cpu", pin_memory=True), torch.cuda.Event()  # type: ignore[no-untyped-call]
            self.values.copy_(tensor, non_blocking=True)
            self.done.record()

    def read(self) -> list[bool]:
        if self.done is not None:
            self.done.synchronize()
        found: list[bool] = self.values.tolist()
        return found


class SlotSearch:
    """The outputs of sentences that are read alike wide, each as soon as it is finished."""

    def __init__(self, strides: Strides) -> None:
        self.strides, self.advance, self.encoding = strides, Recorded(strides), Recorded(self.encoded)

    def encode(self, batch: Batch, lengths: Tensor) -> Given:
        """What is known of sources that have lengths: alone in its place until the next of these shapes."""
        sources: Any = Sources(batch["source"].values, batch["source"].lengths)
        return Given(*self.encoding(NOTHING, sources, 0, 0))._replace(lengths=lengths)

    def encoded(self, given: Any, sources: Any, steps: int, room: int) -> Any:
        batch = Batch({"source": Column(sources.values, sources.place)})
        return Given(self.strides.model.encode(batch)._replace(cost=None), sources.place)

    def __call__(self, waiting: Sequence[Waiting], most: int, encode: Encode) -> dict[int, list[Found]]:
        """`most` slots at once, sentences in this order."""
        found, told = dict[int, list[Found]](), list[Later]()
        self.strides.refresh()
        slots, left = self.filled(NOBODY, waiting[:most], most, encode), waiting[most:]
        while slots.sentences:
            slots = self.stride(slots)
            told.append(Later(slots.going.open))
            if len(told) <= BEHIND[slots.going.place.device.type] and not self.over(slots):
                continue
            kept = self.kept(slots, told.pop(0).read())
            if self.worthwhile(slots, len(kept), bool(left)):
                found |= self.finished(slots, kept)
                free, told = most - len(kept), []
                slots, left = self.filled(only(slots, kept), left[:free], most, encode), left[free:]
        return found

    def stride(self, slots: Slots) -> Slots:
        steps, room = sizes([one.limit for one in slots.sentences], slots.taken, STEPS, self.strides.longest)
        going = slots.going
        if room != slots.room:
            going = fitted(going, self.strides.begin(slots.given, room))
        after = self.advance(slots.given, going, steps, room)
        if not any(slots.taken):
            require_shapes(going, after)
        return slots._replace(going=after, room=room, taken=[count + steps for count in slots.taken])

    @staticmethod
    def over(slots: Slots) -> bool:
        """Whether all have met their limits, which the host knows without asking."""
        return all(taken >= one.limit for one, taken in zip(slots.sentences, slots.taken, strict=True))

    @staticmethod
    def kept(slots: Slots, going: list[bool]) -> list[int]:
        """The slots whose outputs go on."""
        groups = len(going) // slots.number
        return [
            at
            for at, (one, taken) in enumerate(zip(slots.sentences, slots.taken, strict=True))
            if any(going[at * groups : (at + 1) * groups]) and taken < one.limit
        ]

    @staticmethod
    def worthwhile(slots: Slots, kept: int, others: bool) -> bool:
        """Whether to take finished outputs out now."""
        finished = len(slots.sentences) - kept
        return not kept or (others and finished * SHARE >= slots.number) or (not others and kept * 2 <= slots.number)

    def finished(self, slots: Slots, kept: Sequence[int]) -> dict[int, list[Found]]:
        ended = sorted(set(range(len(slots.sentences))) - set(kept))
        if not ended:
            return {}
        progress = slots.going.progress._replace(state=None)  # nobody reads caches again
        if len(ended) < slots.number:
            progress = select_sentences(progress, slots.number, torch.tensor(ended, device=slots.given.lengths.device))
        each = self.strides.read(slots.given, slots.going._replace(progress=progress))
        return {slots.sentences[at].owner: hypotheses for at, hypotheses in zip(ended, each, strict=True)}

    def filled(self, kept: Slots, new: Sequence[Waiting], most: int, encode: Encode) -> Slots:
        """Those that go on, then new ones, in as many slots as the next power of two."""
        found = kept
        if new:
            begun = self.begun(new, encode, kept.room)
            found = joined(kept, begun) if kept.sentences else begun
        count = len(found.sentences)
        spare = min(power_of_two(count), most) - count
        if spare <= 0 or not count:
            return found
        given, going = rows_of(found, [*range(count), *[0] * spare], count)
        return found._replace(given=given, going=going)

    def begun(self, new: Sequence[Waiting], encode: Encode, room: int) -> Slots:
        """With as much room as others have, or as the first stride asks for."""
        room = room or sizes([one.limit for one in new], [0] * len(new), STEPS, self.strides.longest)[1]
        given = encode([one.owner for one in new])
        return Slots([*new], [0] * len(new), given, self.strides.begin(given, room), room)


def only(slots: Slots, which: Sequence[int]) -> Slots:
    """These, without spare ones."""
    if not which:
        return NOBODY
    given, going = rows_of(slots, which, slots.number)
    return Slots([slots.sentences[at] for at in which], [slots.taken[at] for at in which], given, going, slots.room)


def joined(one: Slots, other: Slots) -> Slots:
    given, going = join_sentences((one.given, one.going), (other.given, other.going))
    return Slots(one.sentences + other.sentences, one.taken + other.taken, given, going, one.room)


def rows_of(slots: Slots, which: Sequence[int], number: int) -> tuple[Given, Going]:
    return select_sentences((slots.given, slots.going), number, torch.tensor(which, device=slots.given.lengths.device))
