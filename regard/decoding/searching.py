"""From encoded sources to outputs as tokens: which search, under which rules."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.functional import pad

from regard.data.batching import Batch, Column
from regard.data.tokenizers import END, START
from regard.decoding.beam import beam_search
from regard.decoding.forcing import TeacherForced
from regard.decoding.greedy import greedy_search
from regard.decoding.hypothesis import Found
from regard.decoding.ranking import Coverage
from regard.decoding.reading import read_head
from regard.decoding.rules import Input, Request, limit_met, max_lengths, requested, ruled
from regard.decoding.sampling import Sampling, chances_of, sample
from regard.decoding.shortlist import Shortlist, load_shortlist, spread
from regard.decoding.slots import SlotSearch, Waiting
from regard.decoding.streaming import Tell, watcher
from regard.decoding.strides import Given, Grows, Strides, power_of_two, problem
from regard.decoding.trace import NONE, Details, Trace
from regard.engine.engines import Engine, engine_for
from regard.errors import UserError
from regard.models import Generator
from regard.models.interface import Memory, StepFunction
from regard.models.limits import smallest
from regard.recipe import Decoding
from regard.tables import TABLES, choose

if TYPE_CHECKING:
    from regard.decoding.translator import Translator

OUTPUT_TOKENS = 32  # that an output may have for each token that a batch counts
NARROWEST = 16  # tokens that sources are padded to
WEIGHTS = {"float32": torch.float32, "bfloat16": torch.bfloat16}  # that a GPU multiplies as they are
REPLAYING = ("cuda",)  # devices on which `auto` is `static`


class Searching(TeacherForced):
    """A model that writes, seen from its searches."""

    engine: Engine | None = None  # what encodes and steps in place of the model
    slotted: SlotSearch | None = None
    grows = False  # whether its State was found to grow with every word
    translator: "Translator | None" = None  # what searches in place of both, where it can
    shortlist: Shortlist | None = None  # words that an output may have, by those of its source
    written_by: str | None = None  # in words, where an engine was asked for by name

    def use_engine(self, precision: str) -> Engine:
        """Write by the model's rewritten parts from now on, their weights in this precision; all else is done by the model."""
        if self.device.type != "cpu":
            raise UserError(f"precision={precision} is for a CPU, and this model is on {self.device}: load it with device=cpu")
        self.engine = engine_for(self.model, precision)
        return self.engine

    def use_weights(self, precision: str) -> None:
        """On a GPU the model itself writes, its weights rounded once; scores and alignments are of these weights too."""
        if precision not in WEIGHTS:
            raise UserError(
                f"precision={precision} is for a CPU, and this model is on {self.device}: take {' or '.join(WEIGHTS)}"
            )
        self.model.to(WEIGHTS[precision])

    def use_shortlist(self) -> None:
        """Only words that translate some word of the source, or are frequent (`regard shortlist`)."""
        if self.model.copies_words or self.path is None or not {"source", "target"} <= self.fields.keys():
            raise UserError("a shortlist is for models from text to text that do not copy words")
        self.shortlist = load_shortlist(self.path, len(self.source), len(self.target))
        if self.engine is None and self.translator is None:
            self.use_engine("float32")
        if self.translator is not None:
            self.translator.shortlist = self.shortlist

    @property
    def writer(self) -> Generator:
        model: Generator = self.model if self.engine is None else self.engine.model
        return model

    @torch.inference_mode()
    def search_batch(
        self,
        sources: Sequence[Any],
        settings: Decoding,
        copies: Column | None = None,
        sampling: Sampling | None = None,
        tells: Sequence[Tell] | None = None,
        details: Details = NONE,
        asked: Sequence[Input] = (),
    ) -> list[list[Found]]:
        """The best outputs of each source as tokens, or samples; `asked` of each, unless all are asked the same."""
        return choose(CACHES, settings.cache, "cache").search(self, sources, settings, copies, sampling, tells, details, asked)

    def fitting(self, settings: Decoding, *also: Any) -> Decoding:
        """`auto` as the one that is meant: static where a device replays it and nothing is asked for that it does not have."""
        if settings.cache != "auto":
            return settings
        static = self.device.type in REPLAYING and not (self.grows or any(also) or self.shortlist or self.translator)
        static = static and problem(self.writer, settings) is None
        return settings.model_copy(update={"cache": "static" if static else "dynamic"})

    def search_as_it_fits(
        self, sources: Sequence[Any], settings: Decoding, copies: Column | None, sampling: Sampling | None,
        tells: Sequence[Tell] | None, details: Details, asked: Sequence[Input],
    ) -> list[list[Found]]:  # fmt: skip
        """Static until a State is seen to grow, which its first steps tell."""
        given = copies, sampling, tells, details, asked
        try:
            return self.search_batch(sources, self.fitting(settings, sampling, tells, any(details), asked), *given)
        except Grows:
            self.grows = True
            return self.search_batch(sources, self.fitting(settings), *given)

    def release(self) -> None:
        self.slotted = None

    def search_in_growing_tensors(
        self, sources: Sequence[Any], settings: Decoding, copies: Column | None, sampling: Sampling | None,
        tells: Sequence[Tell] | None, details: Details, asked: Sequence[Input],
    ) -> list[list[Found]]:  # fmt: skip
        inputs = self.inputs(sources, copies)
        request = Request(settings, inputs, self.lengths(inputs, settings), self.target, self.model.limits, own=asked)
        if not self.fit_together(request):
            return self.search_alike(sources, settings, sampling, tells, details, asked)
        if self.translator is not None:
            lengths, limits = request.lengths.tolist(), self.limits(request.lengths, settings).tolist()
            more = {"samples": sampling, "callbacks": tells, "token scores or alignments": any(details), "constraints": asked}
            if self.translator.takes(settings, more, lengths, limits):
                return self.translator.search(sources, settings, limits)
        memory = self.writer.encode(inputs)
        first, before = (
            self.writer.start(memory) if self.shortlist is None else self.start_among(self.shortlist, sources, memory)
        )
        step, state = ruled(first, before, requested(request))
        start = torch.full_like(request.lengths, START)
        ways: dict[str, Any] = {"end": END, "length_penalty": settings.length_penalty, "length_norm": settings.length_norm}
        ways["trace"] = self.trace(details)
        if sampling is None and settings.beam % settings.groups:
            raise UserError(f"decoding.groups={settings.groups} must divide decoding.beam={settings.beam}")
        if sampling is not None:
            longest = int(self.limits(request.lengths, settings).max())
            chances = chances_of(sources, settings.beam, longest, sampling.seed).to(self.device)
            watch = None if tells is None else watcher(tells, settings.beam)
            return sample(step, state, start, chances=chances, sampling=sampling, watch=watch, **ways)
        ways["watch"] = None if tells is None else watcher(tells, settings.groups)
        ways["coverage"] = Coverage(settings.coverage_penalty, memory.visible) if settings.coverage_penalty else None
        if settings.beam == 1:
            return greedy_search(step, state, start, **ways)
        ways |= {"stop": settings.stop, "groups": settings.groups, "diversity": settings.diversity}
        return beam_search(step, state, start, width=settings.beam, **ways)

    def search_in_slots(
        self, sources: Sequence[Any], settings: Decoding, copies: Column | None, sampling: Sampling | None,
        tells: Sequence[Tell] | None, details: Details, asked: Sequence[Input],
    ) -> list[list[Found]]:  # fmt: skip
        """Any number of sources: those that are padded alike are searched one after the other."""
        also = {"samples": sampling, "on_step": tells, "token scores or alignments": any(details), "constraints": asked}
        if self.translator is not None:
            self.translator.takes(settings, also)  # it does not have this cache, and says so where it was asked for by name
        wrong = next((f"{what} are told step by step" for what, given in also.items() if given), None)
        wrong = "a shortlist has other words for each source" if self.shortlist is not None else wrong
        if (wrong := wrong or problem(self.writer, settings)) is not None:
            raise UserError(f"decoding.cache=static: {wrong}; take cache=dynamic")
        search, found = self.slot_search(settings), dict[int, list[Found]]()
        by_length = {len(source): source for source in sources}  # models are asked once for each
        wide = {length: self.width(source) for length, source in by_length.items()}
        sizes, widths = self.sizes(sources, settings), [wide[len(source)] for source in sources]
        for width in sorted(set(widths)):
            rows = sorted((row for row, one in enumerate(widths) if one == width), key=lambda row: -sizes[row])
            encode = partial(self.encode_wide, sources, settings, width, by=search)
            limits = self.limits(self.lengths_of([sources[row] for row in rows], settings), settings).tolist()
            waiting = [Waiting(row, limit) for row, limit in zip(rows, limits, strict=True)]
            try:
                found |= search(waiting, self.slots(sizes[rows[0]], settings), encode)
            except RuntimeError:  # memory ran out: what was recorded is not to keep it
                self.slotted = None
                raise
        return [found[row] for row in range(len(sources))]

    def slot_search(self, settings: Decoding) -> SlotSearch:
        """The last one is kept, with what it has recorded."""
        if self.slotted is None or not self.slotted.strides.serves(self.writer, settings):
            self.slotted = SlotSearch(Strides(self.writer, self.target, settings))
        return self.slotted

    def slots(self, size: int, settings: Decoding) -> int:
        """A power of two, so that few shapes come again and again."""
        most = max(1, settings.batch_tokens // settings.beam // (size + 1))
        return power_of_two(most + 1) // 2

    def width(self, source: Any) -> int:
        """Tokens that a source is padded to, its end mark included."""
        places = smallest(self.model.limits.source, self.model.limits.both)
        wide = power_of_two(len(source) + 1, NARROWEST)
        return wide if places is None else min(wide, places.places)

    def encode_wide(
        self, sources: Sequence[Any], settings: Decoding, width: int, rows: Sequence[int], by: SlotSearch | None = None
    ) -> Given:
        """`by`: a search that replays what it has encoded before in these shapes."""
        batch = self.inputs([sources[row] for row in rows])
        lengths, source = self.lengths(batch, settings), batch["source"]
        if source.lengths is not None:
            room = [0, 0] * (source.values.dim() - 2) + [0, width - source.values.shape[1]]
            batch = Batch({"source": source._replace(values=pad(source.values, room))})
        plain = source.lengths is not None and source.size is None and source.times == 1 and len(batch.columns) == 1
        if by is not None and plain and power_of_two(len(rows)) == len(rows):  # few shapes, which come again and again
            return by.encode(batch, lengths)
        return Given(self.writer.encode(batch)._replace(cost=None), lengths)

    def start_among(self, shortlist: Shortlist, sources: Sequence[Any], memory: Memory) -> tuple[StepFunction, Any]:
        """The engine's step, which scores only words that may come."""
        assert self.engine is not None
        words, allowed = shortlist.candidates(sources)
        step, state = self.engine.narrowed(words).start(memory)
        return spread(step, words, allowed, self.model.vocabulary), state

    def trace(self, details: Details) -> Trace | None:
        if not any(details):
            return None
        return Trace(partial(read_head, reading=self.reading) if details.alignment else None, details.token_scores)

    def fit_together(self, request: Request) -> bool:
        """Not where source and target share places: a short source's output may begin behind the longest one."""
        both, lengths = request.places.both, request.lengths
        if both is None or int(lengths.min()) == int(lengths.max()):
            return True
        return int(lengths.max() + self.limits(lengths, request.decoding).max()) <= both.places

    def search_alike(
        self, sources: Sequence[Any], settings: Decoding, sampling: Sampling | None, tells: Sequence[Tell] | None,
        details: Details, asked: Sequence[Input],
    ) -> list[list[Found]]:  # fmt: skip
        """Sources of one length at a time."""
        found: dict[int, list[Found]] = {}
        for length in sorted(set(map(len, sources))):
            rows = [row for row, source in enumerate(sources) if len(source) == length]
            told = None if tells is None else [tells[row] for row in rows]
            own = [asked[row] for row in rows if asked]
            some = self.search_batch([sources[row] for row in rows], settings, None, sampling, told, details, own)
            found |= zip(rows, some, strict=True)
        return [found[row] for row in range(len(sources))]

    def lengths(self, batch: Batch, settings: Decoding) -> Int[Tensor, "batch"]:
        """Of the sources, END included; one that has no length allows outputs of any."""
        source = batch["source"]
        if source.lengths is None:
            return torch.full((len(source.values),), settings.max_length, device=source.values.device)
        lengths: Tensor = source.lengths
        return lengths

    def lengths_of(self, sources: Sequence[Any], settings: Decoding) -> Int[Tensor, "batch"]:
        """The same before they are a batch, where the host can read them."""
        field = self.fields["source"]
        counts = [settings.max_length if field.form == "single" else len(one) + field.marks for one in sources]
        return torch.tensor(counts, dtype=torch.long)

    def limits(self, lengths: Int[Tensor, "batch"], settings: Decoding) -> Int[Tensor, "batch"]:
        """How many tokens an output may have, its end mark included; `lengths` count that of the source."""
        return max_lengths(lengths, settings, self.model.limits)

    def sizes(self, tokens: Sequence[Any], settings: Decoding) -> list[int]:
        """What each row counts in a batch: its source, or an output that may be far longer, which steps remember whole."""
        lengths = torch.tensor([len(row) for row in tokens], dtype=torch.long)
        longest = self.limits(self.lengths_of(tokens, settings), settings)
        return lengths.maximum(longest // OUTPUT_TOKENS).tolist()

    def limit_met(self, source: Any, settings: Decoding) -> str:
        """The key whose limit an output for this source meets."""
        return limit_met(int(self.lengths(self.inputs([source]), settings)), settings, self.model.limits)


class Cache(NamedTuple):
    search: Callable[..., list[list[Found]]]
    continuous: bool = False  # whether it takes sentences in as others are finished, and so is given all at once


# What steps remember of those before, and so which search there is: in tensors that grow with every word, or in such that keep
# their shapes, which a GPU replays as CUDA graphs; or the latter on a GPU, where it applies
CACHES: dict[str, Cache] = {
    "dynamic": Cache(Searching.search_in_growing_tensors),
    "static": Cache(Searching.search_in_slots, continuous=True),
    "auto": Cache(Searching.search_as_it_fits),
}
TABLES["cache"] = lambda: CACHES
