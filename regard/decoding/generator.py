"""A trained model that writes: generate, search, sample."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, overload

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batching import Batch, Column
from regard.data.copies import Copied
from regard.data.tokenizers import END, START
from regard.decoding.beam import beam_search
from regard.decoding.forcing import TeacherForced
from regard.decoding.greedy import cut, greedy_search
from regard.decoding.hypothesis import LIMIT, ON_STEP, Found, Hypothesis
from regard.decoding.inputs import Texts, texts_of
from regard.decoding.looks import look_at_picture, look_at_text
from regard.decoding.ranking import Coverage
from regard.decoding.reading import Alignment, read_head, read_weights
from regard.decoding.rules import Request, limit_met, max_lengths, requested, ruled
from regard.decoding.sampling import Sampling, chances_of, sample
from regard.decoding.streaming import OnStep, PartialOutput, Tell, watcher
from regard.decoding.trace import NONE, Details, Trace
from regard.decoding.trained import Answers, batches, check_look
from regard.decoding.unknown import replace_unknown, require_looks
from regard.engine.engines import Engine, engine_for
from regard.errors import UserError
from regard.insight.look import Look
from regard.models import Generator
from regard.recipe import Decoding

OUTPUT_TOKENS = 32  # that an output may have for each token that a batch counts


class TrainedGenerator(TeacherForced):
    """generate, search, sample; score, align, look.

    Each takes one `Decoding`, or keyword changes of its fields (`beam=1, length_penalty=0.6`); the model's own is what its
    recipe says. `on_step` is told of every output after every step; if it returns False, that output ends as it stands.
    One text has one result, a list of texts a list of them. Texts that the model cannot read raise an InputError once the
    others are answered: it holds their results.
    """

    does = "writes outputs"
    usage = "regard generate MODEL < input > output"
    further = (*TeacherForced.further, ('regard look MODEL "TEXT" --html look.html', "see where it looks"))
    gives = ("outputs", "likelihood", "text likelihood", "links", "boxes")
    engine: Engine | None = None  # what encodes and steps in place of the model
    dictionary: Mapping[str, str] = MappingProxyType({})  # of source words, for `replace_unknown`; those it lacks are copied

    def use_engine(self, precision: str) -> Engine:
        """Write by the model's rewritten parts from now on, their weights in this precision; all else is done by the model."""
        if self.device.type != "cpu":
            raise UserError(f"precision={precision} is for a CPU, and this model is on {self.device}: load it with device=cpu")
        self.engine = engine_for(self.model, precision)
        return self.engine

    @property
    def writer(self) -> Generator:
        model: Generator = self.model if self.engine is None else self.engine.model
        return model

    @overload
    def generate(
        self, texts: str, decoding: Decoding | None = None, *, on_step: OnStep | None = None, **changes: Any
    ) -> str: ...
    @overload
    def generate(
        self, texts: Iterable[str], decoding: Decoding | None = None, *, on_step: OnStep | None = None, **changes: Any
    ) -> list[str]: ...
    def generate(self, texts: Texts, decoding: Decoding | None = None, *, on_step: OnStep | None = None, **changes: Any) -> Any:
        """The best output for each text, in the order given; empty for an empty text."""
        lines, alone = texts_of(texts, "generate")
        found = self.answer(lines, self.settings(decoding, **changes), on_step=on_step)
        outputs = found.map(lambda hypotheses: hypotheses[0].text if hypotheses else "").all("texts")
        return outputs[0] if alone else outputs

    @overload
    def search(
        self, texts: str, decoding: Decoding | None = None, *, on_step: OnStep | None = None, token_scores: bool = False,
        alignment: bool = False, **changes: Any,
    ) -> list[Hypothesis]: ...  # fmt: skip
    @overload
    def search(
        self, texts: Iterable[str], decoding: Decoding | None = None, *, on_step: OnStep | None = None,
        token_scores: bool = False, alignment: bool = False, **changes: Any,
    ) -> list[list[Hypothesis]]: ...  # fmt: skip
    def search(
        self, texts: Texts, decoding: Decoding | None = None, *, on_step: OnStep | None = None, token_scores: bool = False,
        alignment: bool = False, **changes: Any,
    ) -> Any:  # fmt: skip
        """All hypotheses of each text's beam, best first; none for an empty text. With `token_scores` each tells the
        log-probability of every token, with `alignment` where the search looked for every word."""
        lines, alone = texts_of(texts, "search")
        settings, details = self.settings(decoding, **changes), Details(token_scores, alignment)
        found = self.answer(lines, settings, on_step=on_step, details=details).all("texts")
        return found[0] if alone else found

    @overload
    def sample(
        self, texts: str, count: int = 1, sampling: Sampling | None = None, decoding: Decoding | None = None, *,
        on_step: OnStep | None = None, token_scores: bool = False, alignment: bool = False, **changes: Any,
    ) -> list[Hypothesis]: ...  # fmt: skip
    @overload
    def sample(
        self, texts: Iterable[str], count: int = 1, sampling: Sampling | None = None, decoding: Decoding | None = None, *,
        on_step: OnStep | None = None, token_scores: bool = False, alignment: bool = False, **changes: Any,
    ) -> list[list[Hypothesis]]: ...  # fmt: skip
    def sample(
        self, texts: Texts, count: int = 1, sampling: Sampling | None = None, decoding: Decoding | None = None, *,
        on_step: OnStep | None = None, token_scores: bool = False, alignment: bool = False, **changes: Any,
    ) -> Any:  # fmt: skip
        """`count` outputs of each text in the order they were drawn: a function of the seed and the text alone."""
        lines, alone = texts_of(texts, "sample")
        settings, details = self.settings(decoding, **{"beam": count, **changes}), Details(token_scores, alignment)
        found = self.answer(lines, settings, sampling or Sampling(), on_step, details).all("texts")
        return found[0] if alone else found

    def look(self, text: str, output: str | None = None, tokens: bool | None = None, maps: bool = True, **changes: Any) -> Look:
        """Where the model looked in the text for each word that it writes, or for those of another output: a value that a
        terminal and a notebook show as a picture. `tokens` asks for tokens instead of words; a side without spaces has them.
        `maps=False` leaves out all but the reading that `align` takes. `changes` are those of `search`, such as beam=5."""
        check_look(text, output)
        found = self.search(text, **changes) if output is None and text.strip() else []
        look = look_at_text if self.model.regions is None else look_at_picture
        return look(self, text, found[0].text if found else output or "", found, tokens, maps)

    def answer(
        self, lines: Sequence[str], settings: Decoding, sampling: Sampling | None = None, on_step: OnStep | None = None,
        details: Details = NONE,
    ) -> Answers[list[Hypothesis]]:  # fmt: skip
        if settings.replace_unknown:
            require_looks(self)
        self.require(details)
        (tokens, problems), offers = self.encoded("source", lines), self.offers(lines)
        problems |= self.problems(tokens)
        results: list[list[Hypothesis] | None] = [None if row in problems else [] for row in range(len(lines))]
        readable = [row for row in range(len(lines)) if len(tokens[row]) and row not in problems]
        for rows in batches(self.sizes(tokens, settings), settings.batch_tokens // settings.beam, readable):
            copies = self.copies([offers[row] for row in rows])
            tells = None if on_step is None else [self.tell(on_step, row, offers[row]) for row in rows]
            found = self.search_batch([tokens[row] for row in rows], settings, copies, sampling, tells, details)
            for row, each in zip(rows, found, strict=True):
                limit = self.limit_met(tokens[row], settings) if any(one.end == LIMIT for one in each) else LIMIT
                results[row] = [self.read(one, tokens[row], offers[row], limit) for one in each]
        unmet = [row for row in readable if not results[row]]
        problems |= dict.fromkeys(unmet, "no output was found that keeps to all rules of its decoding")
        results = [None if row in problems else each for row, each in enumerate(results)]
        if settings.replace_unknown:
            results = replace_unknown(self, lines, tokens, offers, results, self.dictionary)
        if details.alignment:
            results = [each and [self.in_words(one, line) for one in each] for each, line in zip(results, lines, strict=True)]
        cut = {row: found[0].end for row, found in enumerate(results) if found and found[0].cut and found[0].end != ON_STEP}
        return Answers(results, problems, cut)

    def sizes(self, tokens: Sequence[Any], settings: Decoding) -> list[int]:
        """What each row counts in a batch: its source, or an output that may be far longer, which steps remember whole."""
        lengths = torch.tensor([len(row) for row in tokens], dtype=torch.long)
        longest = max_lengths(lengths + 1, settings, self.model.limits)
        return lengths.maximum(longest // OUTPUT_TOKENS).tolist()

    def limit_met(self, source: Any, settings: Decoding) -> str:
        """The key whose limit an output for this source meets."""
        return limit_met(int(self.lengths(self.inputs([source]), settings)), settings, self.model.limits)

    def require(self, details: Details) -> None:
        if details.alignment and not self.has_attention:
            raise UserError("this model has no attention, so there is nothing to align by")

    def read(self, found: Found, source: Any, offer: Copied, limit: str) -> Hypothesis:
        """`limit` is the key that is named where an output met it."""
        end = limit if found.end == LIMIT else found.end
        alignment = None if found.looks is None else self.seen(found.looks, found.tokens, source, offer)
        text = self.target.decode(found.tokens, offer.extra)
        return Hypothesis(text, found.tokens, found.log_prob, found.score, end, found.token_scores, alignment)

    @torch.inference_mode()
    def seen(self, looks: Float[Tensor, "steps source"], tokens: list[int], source: Any, offer: Copied) -> Alignment:
        """Where the search looked for each word. By a reading one step later, the last word of an output that has no end mark
        is looked for at a step that was never taken: that output is read again."""
        looks = looks[self.reading.shift :]
        if len(looks) < len(tokens):
            steps = self.steps([source], [tokens], self.copies([offer]), return_weights=True)
            assert steps.weights is not None
            looks = read_weights(steps.weights, self.reading)[0].float().cpu()
        return self.by_words(source, tokens, [looks[: len(tokens)].numpy()], self.spaceless)[0]

    def in_words(self, found: Hypothesis, line: str) -> Hypothesis:
        """Its alignment between words as they are spelled."""
        assert found.alignment is not None
        return found._replace(alignment=self.own_words(found.alignment, (line, found.text), self.spaceless))

    def tell(self, on_step: OnStep, row: int, offer: Copied) -> Tell:
        """Hands what a search knows of a row to the callback."""

        def tell(number: int, tokens: list[int], log_prob: float, going: bool) -> bool:
            written = cut(tokens, END)
            text = self.target.decode(written, offer.extra)
            return on_step(PartialOutput(row, number, text, written, log_prob, not going)) is not False and going

        return tell

    @torch.inference_mode()
    def search_batch(
        self,
        sources: Sequence[Any],
        settings: Decoding,
        copies: Column | None = None,
        sampling: Sampling | None = None,
        tells: Sequence[Tell] | None = None,
        details: Details = NONE,
    ) -> list[list[Found]]:
        inputs = self.inputs(sources, copies)
        request = Request(settings, inputs, self.lengths(inputs, settings), self.target, self.model.limits)
        if not self.fit_together(request):
            return self.search_alike(sources, settings, sampling, tells, details)
        memory = self.writer.encode(inputs)
        first, before = self.writer.start(memory)
        step, state = ruled(first, before, requested(request))
        start = torch.full_like(request.lengths, START)
        ways: dict[str, Any] = {"end": END, "length_penalty": settings.length_penalty, "length_norm": settings.length_norm}
        ways["trace"] = self.trace(details)
        if sampling is not None:
            longest = int(self.limits(request.lengths, settings).max())
            chances = chances_of(sources, settings.beam, longest, sampling.seed).to(self.device)
            watch = None if tells is None else watcher(tells, settings.beam)
            return sample(step, state, start, chances=chances, sampling=sampling, watch=watch, **ways)
        ways["watch"] = None if tells is None else watcher(tells, 1)
        ways["coverage"] = Coverage(settings.coverage_penalty, memory.visible) if settings.coverage_penalty else None
        if settings.beam == 1:
            return greedy_search(step, state, start, **ways)
        return beam_search(step, state, start, width=settings.beam, **ways)

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
        details: Details,
    ) -> list[list[Found]]:  # fmt: skip
        """Sources of one length at a time."""
        found: dict[int, list[Found]] = {}
        for length in sorted(set(map(len, sources))):
            rows = [row for row, source in enumerate(sources) if len(source) == length]
            told = None if tells is None else [tells[row] for row in rows]
            some = self.search_batch([sources[row] for row in rows], settings, None, sampling, told, details)
            found |= zip(rows, some, strict=True)
        return [found[row] for row in range(len(sources))]

    def lengths(self, batch: Batch, settings: Decoding) -> Int[Tensor, "batch"]:
        """Of the sources, END included; one that has no length allows outputs of any."""
        source = batch["source"]
        if source.lengths is None:
            return torch.full((len(source.values),), settings.max_length, device=source.values.device)
        lengths: Tensor = source.lengths
        return lengths

    def limits(self, lengths: Int[Tensor, "batch"], settings: Decoding) -> Int[Tensor, "batch"]:
        """How many tokens an output may have, its end mark included; `lengths` count that of the source."""
        return max_lengths(lengths, settings, self.model.limits)
