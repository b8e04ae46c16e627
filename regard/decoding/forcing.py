"""What a trained model makes of outputs that are known: how probable they are, and where it looked for each word."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from jaxtyping import Float

from regard.data.batching import Column
from regard.data.copies import Copied, extended_rows
from regard.data.fields import Problems
from regard.data.links import merge_pieces
from regard.data.tokenizers import PAD
from regard.decoding.inputs import Pair, Pairs, pairs_of
from regard.decoding.reading import Alignment, own_words, read_weights
from regard.decoding.trained import Answers, Trained, batches
from regard.errors import UserError
from regard.models.directory import Reading
from regard.models.generator import shifted
from regard.models.interface import Steps

Tokens = Sequence[Sequence[int]]


class Likelihood(NamedTuple):
    """How probable a target is, given its source."""

    log_prob: float
    tokens: int  # the end mark counts


class TeacherForced(Trained):
    """score, align."""

    @overload
    def score(self, pairs: Pair) -> Likelihood: ...
    @overload
    def score(self, pairs: Iterable[Pair]) -> list[Likelihood]: ...
    def score(self, pairs: Pairs) -> Any:
        """log p(target | source) of each pair; of one pair, one."""
        both, alone = pairs_of(pairs, "score")
        found = self.force(both, lambda steps, targets, _: self.likelihoods(steps, targets)).all("pairs")
        return found[0] if alone else found

    def likelihoods(self, steps: Steps, targets: Tokens) -> Iterator[Likelihood]:
        log_probs = self.model.logits(steps).float().log_softmax(dim=-1)
        wanted, _ = self.pad(targets)
        each = log_probs.gather(2, wanted[..., None]).squeeze(-1).masked_fill(wanted == PAD, 0.0)
        for total, target in zip(each.double().sum(dim=1).tolist(), targets, strict=True):
            yield Likelihood(total, len(target) + 1)

    @overload
    def align(self, pairs: Pair, reading: Reading | None = None) -> Alignment: ...
    @overload
    def align(self, pairs: Iterable[Pair], reading: Reading | None = None) -> list[Alignment]: ...
    def align(self, pairs: Pairs, reading: Reading | None = None) -> Any:
        """Where the model looks for each word of each target, by its own reading of the attention or by another; of one
        pair, one."""
        both, alone = pairs_of(pairs, "align")
        found = self.aligned(both, [reading or self.reading]).map(lambda each: each[0]).all("pairs")
        return found[0] if alone else found

    def align_by(self, pairs: Iterable[Pair], readings: Sequence[Reading]) -> list[list[Alignment]]:
        """The alignments of each pair by several readings of the same looks."""
        return self.aligned(pairs, readings).all("pairs")

    def aligned(self, pairs: Iterable[Pair], readings: Sequence[Reading]) -> Answers[list[Alignment]]:

        def read(steps: Steps, targets: Tokens, sources: Tokens) -> Iterator[list[Alignment]]:
            assert steps.weights is not None
            looks = [read_weights(steps.weights, reading).float().cpu().numpy() for reading in readings]
            for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
                yield self.by_words(source, target, [weights[row, : len(target), : len(source)] for weights in looks])

        both = list(pairs)
        found = self.force(both, read, return_weights=True)
        spelled = [
            None if each is None else [own_words(one, pair) for one in each]
            for each, pair in zip(found.results, both, strict=True)
        ]
        return Answers(spelled, found.problems)

    @property
    def num_heads(self) -> int:
        """How many heads the attention has, over all layers."""
        found = self.force([("", "")], lambda steps, *_: iter([steps.weights.shape[1]]), return_weights=True)
        return int(found.all("pairs")[0])

    @torch.inference_mode()
    def look_back(self, text: str) -> Alignment:
        """Which words of the source each of its words looked at while it was read: for cells that attend to their past."""
        (tokens,) = self.source.encode([text])
        found = self.model.self_attention_weights(torch.tensor([tokens], device=self.device)) if tokens else None
        if found is None:
            raise UserError("this encoder does not attend to what it has read; train one with cell=lstm_tape or tanh_attention")
        words = self.source.words(tokens)
        source = self.source.decode(tokens).split()
        merged = merge_pieces(found[0].float().cpu().numpy(), words, words)
        return own_words(Alignment(source, source, merged), (text, text))

    def by_words(
        self, source: Sequence[int], target: Sequence[int], looks: Sequence[Float[np.ndarray, "target source"]]
    ) -> list[Alignment]:
        """From tokens to words; all looks are at the same pair."""
        places = self.source.words(source), self.target.words(target)
        words = self.source.decode(source).split(), self.target.decode(target).split()
        seen = slice(len(words[1])), slice(len(words[0]))  # tokens of blanks alone are pieces of no word
        return [Alignment(*words, merge_pieces(weights, *places)[seen]) for weights in looks]

    @torch.inference_mode()
    def force(self, pairs: Iterable[Pair], read: Callable[..., Iterator[Any]], return_weights: bool = False) -> Answers[Any]:
        """Teacher forcing over batches of pairs; `read` turns the steps of a batch into one result a pair."""
        if return_weights and not self.has_attention:
            raise UserError("this model has no attention, so there is nothing to look at or to align by")
        both = list(pairs)
        sources, targets, offers, problems = self.tokens(both)
        problems |= self.problems(sources, targets)
        results: list[Any] = [None] * len(both)
        sizes = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for rows in batches(sizes, self.decoding.batch_tokens, [row for row in range(len(both)) if row not in problems]):
            some, wanted = [sources[row] for row in rows], [targets[row] for row in rows]
            steps = self.steps(some, wanted, self.copies([offers[row] for row in rows]), return_weights)
            for row, result in zip(rows, read(steps, wanted, some), strict=True):
                results[row] = result
        return Answers(results, problems)

    def steps(self, sources: Sequence[Any], targets: Tokens, copies: Column | None, return_weights: bool) -> Steps:
        """All steps of known targets at once."""
        found: Steps = self.model.teacher_forced(self.inputs(sources, copies), shifted(self.pad(targets)[0]), return_weights)
        return found

    def tokens(self, pairs: Sequence[Pair]) -> tuple[list[Any], list[list[int]], list[Copied], Problems]:
        """Of known pairs: sources, targets (over the extended vocabulary if the model copies), what is offered, problems."""
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        read, problems = self.encoded("source", sources)
        if not self.model.copies_words:
            return read, self.target.encode(targets), self.offers(sources), problems
        offers, extended = extended_rows(sources, targets, self.source, self.target)
        return read, extended, offers, problems
