"""A trained language model: continue texts, score them."""

from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.batching import Batch, Column, column_of
from regard.data.copies import Copied
from regard.data.tokenizers import END, START
from regard.decoding.beam import beam_search
from regard.decoding.forcing import Likelihood, TeacherForced, in_one
from regard.decoding.greedy import cut, greedy_search
from regard.decoding.hypothesis import LIMIT, Found, Hypothesis
from regard.decoding.inputs import Texts, texts_of
from regard.decoding.long_text import log_probs
from regard.decoding.looking import NOTHING, labels_of, sides_of
from regard.decoding.looking import Sides as LookSides
from regard.decoding.reading import Sides
from regard.decoding.recent import Recent
from regard.decoding.rules import Request, inputs_of, requested, ruled, unmet
from regard.decoding.sampling import Sampling, chances_of, sample
from regard.decoding.searching import CACHES
from regard.decoding.streaming import OnStep, PartialOutput, Tell, watcher
from regard.decoding.trained import Answers, batches, check_look
from regard.errors import UserError
from regard.insight.look import Look
from regard.insight.maps import View, view
from regard.models.device import on_device
from regard.models.generator import shifted
from regard.models.interface import Step, Steps
from regard.recipe import Decoding
from regard.tables import choose

NEVER = -1  # the token that ends a text which goes on from line to line


class TrainedLanguageModel(TeacherForced):
    """continue_, score."""

    does = "continues texts"
    usage = 'regard continue MODEL "a text"'
    gives = ("likelihood", "text likelihood")
    recent: Recent | None = None  # of one long text: words that stood in it a moment ago are likelier (`score`)

    @overload
    def continue_(
        self, prompts: str, count: int = 1, sampling: Sampling | None = None, *, search: bool = False,
        on_step: OnStep | None = None, **changes: Any,
    ) -> list[Hypothesis]: ...  # fmt: skip
    @overload
    def continue_(
        self, prompts: Iterable[str], count: int = 1, sampling: Sampling | None = None, *, search: bool = False,
        on_step: OnStep | None = None, **changes: Any,
    ) -> list[list[Hypothesis]]: ...  # fmt: skip
    @torch.inference_mode()
    def continue_(
        self, prompts: Texts, count: int = 1, sampling: Sampling | None = None, *, search: bool = False,
        on_step: OnStep | None = None, **changes: Any,
    ) -> Any:  # fmt: skip
        """`count` texts that begin as each prompt does, drawn word by word; the prompt is not repeated. `search`: the most
        probable ones instead, by `decoding.beam`. A model of one long text (`model.window`) goes on from line to line until
        there are `max_length` tokens; `on_step` is told of every word."""
        texts, alone = texts_of(prompts, "continue_", "prompts")
        tokens, settings = [self.prompt(text) for text in texts], self.settings(**changes)
        problems = self.problems([[]] * len(tokens), tokens) | self.refused(settings, len(texts))
        results: list[Any] = [None] * len(texts)
        drawing = None if search else sampling or Sampling()
        for row, words in enumerate(tokens):
            if row not in problems:
                tell = None if on_step is None else self.tell(on_step, row, words)
                found = self.written(words, count, settings, drawing, tell)
                results[row] = [self.read(one, words, settings) for one in found[:count]]
                problems |= {} if found else {row: unmet(settings)}
        found = Answers(results, problems).all("prompts")
        return found[0] if alone else found

    def refused(self, settings: Decoding, count: int) -> dict[int, str]:
        """What is wrong with the constraints of its settings."""
        asked, problems = inputs_of([], settings, [Copied([], [])] * count, self.target)
        if self.lines_go_on and (asked or settings.only_words):
            raise UserError("this model goes on from line to line, and constraints (prefix, must, ban ...) are for one line")
        return problems

    @property
    def lines_go_on(self) -> bool:
        """Whether a text goes on after the end of a row."""
        return self.model.window is not None

    def prompt(self, text: str) -> list[int]:
        """Its tokens; in one long text those of all its lines, as many of the last ones as leave room to go on."""
        if not self.lines_go_on:
            return self.target.encode([text])[0]
        lines = self.target.encode(text.split("\n"))
        tokens = [token for line in lines for token in (*line, END)][:-1]
        return tokens if self.model.room is None else tokens[-(self.model.room // 2) :]

    def spelled(self, prompt: list[int], tokens: Sequence[int]) -> str:
        """What stands behind the prompt, with the space between them if there is one."""
        before, whole = ("\n".join(self.target.decode(line) for line in lines_of(ids)) for ids in (prompt, [*prompt, *tokens]))
        return whole.removeprefix(before)

    def read(self, found: Found, prompt: list[int], settings: Decoding) -> Hypothesis:
        places = self.model.limits.target
        room = "model.window" if places is None else places.key
        limit = "decoding.max_length" if self.longest(prompt, settings) == settings.max_length else room
        end = limit if found.end == LIMIT else found.end
        return Hypothesis(self.spelled(prompt, found.tokens), found.tokens, found.log_prob, found.score, end)

    def longest(self, prompt: list[int], settings: Decoding) -> int:
        """How many tokens may follow."""
        room = self.model.room
        return settings.max_length if room is None else max(min(settings.max_length, room - len(prompt)), 1)

    def tell(self, on_step: OnStep, row: int, prompt: list[int]) -> Tell:
        def tell(number: int, tokens: list[int], log_prob: float, going: bool) -> bool:
            written = cut(tokens, NEVER if self.lines_go_on else END)
            told = PartialOutput(row, number, self.spelled(prompt, written), written, log_prob, not going)
            return on_step(told) is not False and going

        return tell

    def written(
        self, words: list[int], count: int, settings: Decoding, sampling: Sampling | None, tell: Tell | None
    ) -> list[Found]:
        if choose(CACHES, settings.cache, "cache").continuous:
            raise UserError(f"decoding.cache={settings.cache} is for models that write outputs for sources: take cache=dynamic")
        first, state = self.model.start(self.model.nothing(1))

        def step(tokens: Int[Tensor, "rows"], state: Any) -> Step:
            found: Step = first(torch.where(tokens == END, START, tokens), state)  # a new line begins, as in training
            return found

        read = torch.tensor([START, *words], device=self.device)
        for word in read[:-1]:
            state = step(word[None], state).state
        longest = self.longest(words, settings)
        room_for = settings.model_copy(update={"max_length": longest, "max_ratio": 1000.0, "min_ratio": None})
        end = NEVER if self.lines_go_on else END
        request = Request(room_for, Batch({}), torch.full((1,), longest, device=self.device), self.target, end=end)
        ruling = ruled(step, state, requested(request))
        watch = None if tell is None else watcher([tell], 1 if sampling is None else count)
        ways: dict[str, Any] = {"end": end, "length_penalty": settings.length_penalty,
                                "length_norm": settings.length_norm, "watch": watch}  # fmt: skip
        if sampling is not None:
            chances = chances_of([words], count, longest, sampling.seed).to(self.device)
            return sample(*ruling, read[-1:], chances=chances, sampling=sampling, **ways)[0]
        width = max(settings.beam, count)
        found = (
            greedy_search(*ruling, read[-1:], **ways) if width == 1 else beam_search(*ruling, read[-1:], width=width, **ways)
        )
        return found[0]

    @torch.inference_mode()
    def score(self, pairs: str | Iterable[str | Sequence[str]], token_scores: bool = False) -> Any:
        """log p(text) of each row, which is a text or has it in its only column; of one text, one. A model of one long text
        (`model.window`) takes rows for its parts: each is read after those before it."""
        given = pairs if isinstance(pairs, str) else [row[0] if isinstance(row, tuple) and row else row for row in pairs]
        texts, alone = texts_of(given, "score")
        targets = self.target.encode(texts)
        if self.model.window is not None:
            likelihoods = self.in_one(targets, token_scores)
            return likelihoods[0] if alone else likelihoods
        if self.recent is not None:
            raise UserError(
                "`recent` looks back in one long text, and each row is a text of its own to this model (model.window)"
            )
        problems = self.problems([[]] * len(targets), targets)
        results: list[Likelihood | None] = [None] * len(texts)
        for rows in batches(
            [len(row) for row in targets], self.decoding.batch_tokens, [row for row in range(len(texts)) if row not in problems]
        ):
            wanted = [targets[row] for row in rows]
            for row, one in zip(rows, self.likelihoods(self.all_steps(wanted), wanted, token_scores), strict=True):
                results[row] = one
        found = Answers(results, problems).all("texts")
        return found[0] if alone else found

    def look(self, text: str, output: str | None = None, tokens: bool | None = None, maps: bool = True, **changes: Any) -> Look:
        """Where the model looked in what it had read, for each word of a text, and how probable each was."""
        check_look(text, output)
        if output is not None:
            raise UserError("a language model has no source: it is looked at while it reads a text, which has no other output")
        if not text.strip():
            raise UserError("there is nothing to look at: the text is empty")
        spelled = in_one(self.target, text) if tokens is None else tokens
        every, chances = self.looked("", text, (False, spelled), self.settings(**changes).beam)
        return Look(text, "", view(every, View()).heatmap, every, chances)

    def read_pair(self, text: str, output: str, tokens: Sides) -> tuple[Batch, LookSides, Copied]:
        """The output alone; an end mark stands before it."""
        (target,) = self.target.encode([output])
        if problems := self.problems([[]], [target]):
            raise UserError(problems[0])
        batch = Batch({"target": Column(*self.pad([target]))})
        return batch, sides_of(NOTHING, labels_of(self.fields["target"], output, target, tokens[1])), Copied([], [])

    def in_one(self, targets: Sequence[Sequence[int]], token_scores: bool = False) -> list[Likelihood]:
        """Every token and every end mark once, in lanes that start early enough to know what came before."""
        text = np.array([token for row in targets for token in (*row, END)], np.int64)
        each = log_probs(self.model, text, self.decoding.batch_tokens, self.recent)
        ends = np.cumsum([len(row) + 1 for row in targets])
        return [
            Likelihood(float(part.sum()), len(part), part.tolist() if token_scores else None)
            for part in (np.split(each, ends[:-1]) if len(text) else ())
        ]

    def all_steps(self, targets: Sequence[Sequence[int]]) -> Steps:
        batch = on_device(Batch({"target": column_of(self.fields["target"], targets)}), self.device)
        steps: Steps = self.model.teacher_forced(batch, shifted(batch["target"].values))
        return steps


def lines_of(tokens: Sequence[int]) -> list[list[int]]:
    """What stands before, between and behind end marks."""
    lines: list[list[int]] = [[]]
    for token in tokens:
        if token == END:
            lines.append([])
        else:
            lines[-1].append(token)
    return lines
