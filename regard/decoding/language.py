"""A trained language model: continue texts, score them."""

from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
import torch

from regard.data.batching import Batch, column_of
from regard.data.tokenizers import END, START
from regard.decoding.forcing import Likelihood, TeacherForced
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.inputs import Texts, texts_of
from regard.decoding.long_text import log_probs
from regard.decoding.rules import Request, requested, ruled
from regard.decoding.sampling import Sampling, chances_of, sample
from regard.decoding.trained import Answers, batches
from regard.models.device import on_device
from regard.models.generator import shifted
from regard.models.interface import Steps
from regard.recipe import Decoding


class TrainedLanguageModel(TeacherForced):
    """continue_, score."""

    does = "continues texts"
    usage = 'regard.load("MODEL").continue_(["a text"])'
    gives = ("likelihood",)

    @overload
    def continue_(self, prompts: str, count: int = 1, sampling: Sampling | None = None, **changes: Any) -> list[Hypothesis]: ...
    @overload
    def continue_(
        self, prompts: Iterable[str], count: int = 1, sampling: Sampling | None = None, **changes: Any
    ) -> list[list[Hypothesis]]: ...
    @torch.inference_mode()
    def continue_(self, prompts: Texts, count: int = 1, sampling: Sampling | None = None, **changes: Any) -> Any:
        """`count` texts that begin as each prompt does, drawn word by word; the prompt is not repeated."""
        texts, alone = texts_of(prompts, "continue_", "prompts")
        tokens, settings = self.target.encode(texts), self.settings(**changes)
        problems = self.problems([[]] * len(tokens), tokens)
        results: list[Any] = [None] * len(texts)
        for row, words in enumerate(tokens):
            if row not in problems:
                results[row] = self.drawn(words, count, settings, sampling or Sampling())
        found = Answers(results, problems).all("prompts")
        return found[0] if alone else found

    def drawn(self, words: list[int], count: int, settings: Decoding, sampling: Sampling) -> list[Hypothesis]:
        step, state = self.model.start(self.model.nothing(1))
        read = [START, *words]
        for word in read[:-1]:
            state = step(torch.tensor([word], device=self.device), state).state
        room = self.model.limits.target
        longest = settings.max_length if room is None else min(settings.max_length, room.places - len(words))
        request = Request(settings.model_copy(update={"max_length": longest, "max_ratio": 1000.0}), Batch({}),
                          torch.full((1,), longest, device=self.device), self.target)  # fmt: skip
        ruling = ruled(step, state, requested(request))
        chances = chances_of([words], count, longest, sampling.seed).to(self.device)
        start = torch.tensor(read[-1:], device=self.device)
        (found,) = sample(*ruling, start, end=END, chances=chances, sampling=sampling, length_penalty=settings.length_penalty,
                          length_norm=settings.length_norm)  # fmt: skip
        return [Hypothesis(self.target.decode(one.tokens), *one) for one in found]

    @torch.inference_mode()
    def score(self, pairs: str | Iterable[str | Sequence[str]]) -> Any:
        """log p(text) of each row, which is a text or has it in its only column; of one text, one. A model of one long text
        (`model.window`) takes rows for its parts: each is read after those before it."""
        given = pairs if isinstance(pairs, str) else [row[0] if isinstance(row, tuple) and row else row for row in pairs]
        texts, alone = texts_of(given, "score")
        targets = self.target.encode(texts)
        if self.model.window is not None:
            likelihoods = self.in_one(targets)
            return likelihoods[0] if alone else likelihoods
        problems = self.problems([[]] * len(targets), targets)
        results: list[Likelihood | None] = [None] * len(texts)
        for rows in batches(
            [len(row) for row in targets], self.decoding.batch_tokens, [row for row in range(len(texts)) if row not in problems]
        ):
            wanted = [targets[row] for row in rows]
            for row, one in zip(rows, self.likelihoods(self.all_steps(wanted), wanted), strict=True):
                results[row] = one
        found = Answers(results, problems).all("texts")
        return found[0] if alone else found

    def in_one(self, targets: Sequence[Sequence[int]]) -> list[Likelihood]:
        """Every token and every end mark once, in lanes that start early enough to know what came before."""
        text = np.array([token for row in targets for token in (*row, END)], np.int64)
        each, ends = log_probs(self.model, text, self.decoding.batch_tokens), np.cumsum([len(row) + 1 for row in targets])
        return [Likelihood(float(part.sum()), len(part)) for part in np.split(each, ends[:-1])] if len(text) else []

    def all_steps(self, targets: Sequence[Sequence[int]]) -> Steps:
        batch = on_device(Batch({"target": column_of(self.fields["target"], targets)}), self.device)
        steps: Steps = self.model.teacher_forced(batch, shifted(batch["target"].values))
        return steps
