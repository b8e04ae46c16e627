"""A trained model that writes: generate, search, sample."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from regard.data.copies import Copied
from regard.data.tokenizers import END
from regard.decoding.greedy import cut
from regard.decoding.hypothesis import LIMIT, ON_STEP, Found, Hypothesis
from regard.decoding.inputs import Texts, texts_of
from regard.decoding.looks import look_at_picture, look_at_text
from regard.decoding.reading import Alignment, read_weights
from regard.decoding.rules import Asked, Each, each_asked, inputs_of, unmet
from regard.decoding.sampling import Sampling
from regard.decoding.searching import CACHES, Searching
from regard.decoding.streaming import OnStep, PartialOutput, Tell, streamed
from regard.decoding.strides import Grows
from regard.decoding.trace import NONE, Details
from regard.decoding.trained import Answers, batches, check_look
from regard.decoding.unknown import replace_unknown, require_looks
from regard.errors import UserError
from regard.insight.look import Look
from regard.recipe import Decoding


class TrainedGenerator(Searching):
    """generate, search, sample; score, align, look.

    Each takes one `Decoding`, or keyword changes of its fields (`beam=1, length_penalty=0.6`); the model's own is what its
    recipe says. `on_step` is told of every output after every step; if it returns False, that output ends as it stands.
    One text has one result, a list of texts a list of them. Texts that the model cannot read raise an InputError once the
    others are answered: it holds their results.
    """

    does = "writes outputs"
    usage = "regard generate MODEL < input > output"
    further = (*Searching.further, ('regard look MODEL "TEXT" --html look.html', "see where it looks"))
    gives = ("outputs", "likelihood", "text likelihood", "links", "boxes")
    dictionary: Mapping[str, str] = MappingProxyType({})  # of source words, for `replace_unknown`; those it lacks are copied

    @overload
    def generate(
        self, texts: str, decoding: Decoding | None = None, *, constraints: Asked = None, on_step: OnStep | None = None,
        **changes: Any,
    ) -> str: ...  # fmt: skip
    @overload
    def generate(
        self, texts: Iterable[str], decoding: Decoding | None = None, *, constraints: Each = None,
        on_step: OnStep | None = None, **changes: Any,
    ) -> list[str]: ...  # fmt: skip
    def generate(
        self, texts: Texts, decoding: Decoding | None = None, *, constraints: Each | Asked = None,
        on_step: OnStep | None = None, **changes: Any,
    ) -> Any:  # fmt: skip
        """The best output for each text, in the order given; empty for an empty text."""
        lines, alone = texts_of(texts, "generate")
        found = self.answer(lines, self.settings(decoding, **changes), None, on_step, constraints=constraints)
        outputs = found.map(lambda hypotheses: hypotheses[0].text if hypotheses else "").all("texts")
        return outputs[0] if alone else outputs

    @overload
    def search(
        self, texts: str, decoding: Decoding | None = None, *, constraints: Asked = None, on_step: OnStep | None = None,
        token_scores: bool = False, alignment: bool = False, **changes: Any,
    ) -> list[Hypothesis]: ...  # fmt: skip
    @overload
    def search(
        self, texts: Iterable[str], decoding: Decoding | None = None, *, constraints: Each = None,
        on_step: OnStep | None = None, token_scores: bool = False, alignment: bool = False, **changes: Any,
    ) -> list[list[Hypothesis]]: ...  # fmt: skip
    def search(
        self, texts: Texts, decoding: Decoding | None = None, *, constraints: Each | Asked = None,
        on_step: OnStep | None = None, token_scores: bool = False, alignment: bool = False, **changes: Any,
    ) -> Any:  # fmt: skip
        """All hypotheses of each text's beam, best first; none for an empty text. With `token_scores` each tells the
        log-probability of every token, with `alignment` where the search looked for every word."""
        lines, alone = texts_of(texts, "search")
        settings, details = self.settings(decoding, **changes), Details(token_scores, alignment)
        found = self.answer(lines, settings, None, on_step, details, constraints).all("texts")
        return found[0] if alone else found

    @overload
    def sample(
        self, texts: str, count: int = 1, sampling: Sampling | None = None, decoding: Decoding | None = None, *,
        constraints: Asked = None, on_step: OnStep | None = None, token_scores: bool = False, alignment: bool = False,
        **changes: Any,
    ) -> list[Hypothesis]: ...  # fmt: skip
    @overload
    def sample(
        self, texts: Iterable[str], count: int = 1, sampling: Sampling | None = None, decoding: Decoding | None = None, *,
        constraints: Each = None, on_step: OnStep | None = None, token_scores: bool = False, alignment: bool = False,
        **changes: Any,
    ) -> list[list[Hypothesis]]: ...  # fmt: skip
    def sample(
        self, texts: Texts, count: int = 1, sampling: Sampling | None = None, decoding: Decoding | None = None, *,
        constraints: Each | Asked = None, on_step: OnStep | None = None, token_scores: bool = False, alignment: bool = False,
        **changes: Any,
    ) -> Any:  # fmt: skip
        """`count` outputs of each text in the order they were drawn: a function of the seed and the text alone."""
        lines, alone = texts_of(texts, "sample")
        settings, details = self.settings(decoding, **{"beam": count, **changes}), Details(token_scores, alignment)
        found = self.answer(lines, settings, sampling or Sampling(), on_step, details, constraints).all("texts")
        return found[0] if alone else found

    def stream(
        self, texts: Texts, decoding: Decoding | None = None, *, sampling: Sampling | None = None,
        constraints: Each | Asked = None, **changes: Any,
    ) -> Iterator[PartialOutput]:  # fmt: skip
        """What `on_step` would be told, one after the other: `for output in model.stream(text): print(output.text)`. Whoever
        stops asking ends the search. With a `Sampling`, of `decoding.beam` samples."""
        lines, _ = texts_of(texts, "stream")
        settings = self.settings(decoding, **changes)
        return streamed(lambda on_step: self.answer(lines, settings, sampling, on_step, constraints=constraints).all("texts"))

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
        details: Details = NONE, constraints: Each | Asked = None,
    ) -> Answers[list[Hypothesis]]:  # fmt: skip
        """In tensors that keep their shapes, where that fits and no State is found to grow."""
        given = sampling, on_step, details, constraints
        try:
            return self.answer_by(lines, self.fitting(settings, sampling, on_step, any(details), constraints), *given)
        except Grows:
            if settings.cache != "auto":
                raise
            self.grows = True
            return self.answer_by(lines, self.fitting(settings), *given)

    def answer_by(
        self, lines: Sequence[str], settings: Decoding, sampling: Sampling | None, on_step: OnStep | None, details: Details,
        constraints: Each | Asked,
    ) -> Answers[list[Hypothesis]]:  # fmt: skip
        if settings.replace_unknown:
            require_looks(self)
        self.require(details)
        (tokens, problems), offers = self.encoded("source", lines), self.offers(lines)
        asked, wrong = inputs_of(each_asked(constraints, len(lines)), settings, offers, self.target)
        problems |= wrong | self.problems(tokens)
        results: list[list[Hypothesis] | None] = [None if row in problems else [] for row in range(len(lines))]
        readable = [row for row in range(len(lines)) if len(tokens[row]) and row not in problems]
        for rows in self.batches(tokens, settings, readable):
            copies = self.copies([offers[row] for row in rows])
            tells = None if on_step is None else [self.tell(on_step, row, offers[row]) for row in rows]
            found = self.search_batch(
                [tokens[row] for row in rows], settings, copies, sampling, tells, details, [asked[row] for row in rows if asked]
            )
            for row, each in zip(rows, found, strict=True):
                limit = self.limit_met(tokens[row], settings) if any(one.end == LIMIT for one in each) else LIMIT
                results[row] = [self.read(one, tokens[row], offers[row], limit) for one in each]
        problems |= {row: unmet(asked[row].decoding if asked else settings) for row in readable if not results[row]}
        results = [None if row in problems else each for row, each in enumerate(results)]
        if settings.replace_unknown:
            results = replace_unknown(self, lines, tokens, offers, results, self.dictionary)
        if details.alignment:
            results = [each and [self.in_words(one, line) for one in each] for each, line in zip(results, lines, strict=True)]
        cut = {row: found[0].end for row, found in enumerate(results) if found and found[0].cut and found[0].end != ON_STEP}
        return Answers(results, dict(sorted(problems.items())), cut)

    def batches(self, tokens: Sequence[Any], settings: Decoding, rows: Sequence[int]) -> Iterable[list[int]]:
        """What is searched together; where sentences are taken in as others are finished, all."""
        if CACHES[settings.cache].continuous:
            return [[*rows]] if rows else []
        return batches(self.sizes(tokens, settings), settings.batch_tokens // settings.beam, rows)

    def require(self, details: Details) -> None:
        if details.alignment and not self.has_attention:
            raise UserError("this model has no attention, so there is nothing to align by")

    def read(self, found: Found, source: Any, offer: Copied, limit: str) -> Hypothesis:
        """`limit` is the key that is named where an output met it."""
        end = limit if found.end == LIMIT else found.end
        alignment = None if found.looks is None else self.seen(found.looks, found.tokens, source, offer)
        text = self.target.decode(found.tokens, offer.extra)
        return Hypothesis(text, found.tokens, found.log_prob, found.score, end, found.token_scores, alignment)

    def seen(self, looks: Float[Tensor, "steps source"], tokens: list[int], source: Any, offer: Copied) -> Alignment:
        """Where the search looked for each word. By a reading one step later, the last word of an output that has no end mark
        is looked for at a step that was never taken: that output is read again, if
        the model has a place for it; if not, it has no link."""
        looks = looks[self.reading.shift :]
        if len(looks) < len(tokens):
            looks = (
                self.seen_again(tokens, source, offer) if not self.problems([source], [tokens]) else pad(looks, (0, 0, 0, 1))
            )
        return self.by_words(source, tokens, [looks[: len(tokens)].numpy()], self.spaceless)[0]

    @torch.inference_mode()
    def seen_again(self, tokens: list[int], source: Any, offer: Copied) -> Float[Tensor, "tokens source"]:
        steps = self.steps([source], [tokens], self.copies([offer]), return_weights=True)
        assert steps.weights is not None
        return read_weights(steps.weights, self.reading)[0].float().cpu()

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
