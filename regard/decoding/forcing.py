"""What a trained model makes of outputs that are known: how probable they are, and where it looked for each word."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from jaxtyping import Float

from regard.data.batching import Batch, Column
from regard.data.copies import Copied, extended_rows
from regard.data.fields import Image, Problems, Text
from regard.data.links import merge_pieces
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizers import PAD
from regard.decoding.inputs import Pair, Pairs, pairs_of
from regard.decoding.looking import Sides as LookSides
from regard.decoding.looking import chances_of, labels_of, maps_of, own, sides_of, units
from regard.decoding.reading import WORDS, Alignment, Sides, read_weights
from regard.decoding.trained import Answers, Trained, batches
from regard.errors import UserError
from regard.insight.heatmap import Heatmap
from regard.insight.look import Chance
from regard.insight.maps import AttentionMap
from regard.models.directory import Reading
from regard.models.generator import shifted
from regard.models.interface import Steps

Tokens = Sequence[Sequence[int]]


class Likelihood(NamedTuple):
    """How probable a target is, given its source."""

    log_prob: float
    tokens: int  # the end mark counts
    token_scores: list[float] | None = None  # log p of each token and of the end mark, if asked for


class TeacherForced(Trained):
    """score, align."""

    @overload
    def score(self, pairs: Pair, token_scores: bool = False) -> Likelihood: ...
    @overload
    def score(self, pairs: Iterable[Pair], token_scores: bool = False) -> list[Likelihood]: ...
    def score(self, pairs: Pairs, token_scores: bool = False) -> Any:
        """log p(target | source) of each pair; of one pair, one. With `token_scores`, of each of its tokens too."""
        both, alone = pairs_of(pairs, "score")
        found = self.likely(both, token_scores).all("pairs")
        return found[0] if alone else found

    def likely(self, pairs: Sequence[Pair], token_scores: bool = False) -> Answers[Likelihood]:
        return self.force(pairs, lambda steps, targets, _: self.likelihoods(steps, targets, token_scores))

    def likelihoods(self, steps: Steps, targets: Tokens, token_scores: bool = False) -> Iterator[Likelihood]:
        log_probs = self.model.logits(steps).float().log_softmax(dim=-1)
        wanted, _ = self.pad(targets)
        each = log_probs.gather(2, wanted[..., None]).squeeze(-1).masked_fill(wanted == PAD, 0.0)
        for row, (total, target) in enumerate(zip(each.double().sum(dim=1).tolist(), targets, strict=True)):
            length = len(target) + 1
            yield Likelihood(total, length, each[row, :length].tolist() if token_scores else None)

    @overload
    def align(self, pairs: Pair, reading: Reading | None = None, tokens: Sides | None = None) -> Alignment: ...
    @overload
    def align(self, pairs: Iterable[Pair], reading: Reading | None = None, tokens: Sides | None = None) -> list[Alignment]: ...
    def align(self, pairs: Pairs, reading: Reading | None = None, tokens: Sides | None = None) -> Any:
        """Where the model looks for each word of each target, by its own reading of the attention or by another; of one
        pair, one. `tokens` says which sides are cut into tokens instead of words: those without spaces, unless given."""
        both, alone = pairs_of(pairs, "align")
        found = self.aligned(both, [reading or self.reading], tokens).map(lambda each: each[0]).all("pairs")
        return found[0] if alone else found

    @property
    def spaceless(self) -> Sides:
        """Which sides have no spaces between words, so that tokens are linked there."""
        source, target = (isinstance(field, Text) and field.tokenizer.spaceless for field in self.fields.values())
        return source, target

    def align_by(self, pairs: Iterable[Pair], readings: Sequence[Reading]) -> list[list[Alignment]]:
        """The alignments of each pair by several readings of the same looks; of words, as gold links count them."""
        return self.aligned(pairs, readings, WORDS).all("pairs")

    def aligned(
        self, pairs: Iterable[Pair], readings: Sequence[Reading], tokens: Sides | None = None
    ) -> Answers[list[Alignment]]:
        sides = self.spaceless if tokens is None else tokens

        def read(steps: Steps, targets: Tokens, sources: Tokens) -> Iterator[list[Alignment]]:
            assert steps.weights is not None
            looks = [read_weights(steps.weights, reading).float().cpu().numpy() for reading in readings]
            for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
                yield self.by_words(source, target, [weights[row, : len(target)] for weights in looks], sides)

        both = list(pairs)
        found = self.force(both, read, return_weights=True)
        spelled = [
            None if each is None else [self.own_words(one, pair, sides) for one in each]
            for each, pair in zip(found.results, both, strict=True)
        ]
        return Answers(spelled, found.problems)

    @property
    @torch.inference_mode()
    def num_heads(self) -> int:
        """How many heads the attention has, over all layers."""
        field = self.fields["source"]
        blank: Any = np.zeros((1, *field.features), field.width) if field.features else []
        weights = self.steps([blank], [[]], self.copies([Copied([], [])]), return_weights=True).weights
        assert weights is not None
        return weights.shape[1]

    @torch.inference_mode()
    def looked(self, text: str, output: str, tokens: Sides, number: int = 0) -> tuple[list[AttentionMap], list[Chance]]:
        """Every attention while this output is written; how probable its tokens were, each beside the `number` best ones."""
        batch, sides, offer = self.read_pair(text, output, tokens)
        log_probs = self.model(batch, self.model.read_words(batch))[0].float().log_softmax(dim=-1)
        (written,) = batch["target"].values.tolist()
        return maps_of(self, batch, sides), chances_of(self.target, log_probs, written, sides.written, number, offer.extra)

    def read_pair(self, text: str, output: str, tokens: Sides) -> tuple[Batch, LookSides, Copied]:
        """One pair as a model reads it, what stands at its positions, and what may be copied."""
        sources, (target,), (offer,), problems = self.tokens([(text, output)])
        if problems := problems | self.problems(sources, [target]):
            raise UserError(problems[0])
        (source,), regions, read = sources, self.model.regions, self.fields["source"]
        places = source if regions is None else range(regions.rows * regions.columns)
        labels = labels_of(read, text, places, tokens[0]), labels_of(self.fields["target"], output, target, tokens[1])
        inputs = self.inputs(sources, self.copies([offer]))
        batch = Batch({**inputs.columns, "target": Column(*self.pad([target]))})
        return batch, sides_of(*labels, read.marks if regions is None else 0), offer

    def sides_of(self, *pair: str) -> Sides:
        """Which of two texts are shown by tokens: those without spaces in them."""
        source, target = (
            isinstance(field, Text) and in_one(field.tokenizer, text)
            for field, text in zip(self.fields.values(), pair, strict=True)
        )
        return source, target

    def heatmap(self, found: Alignment) -> Heatmap:
        """The picture of it, and what it is a picture of."""
        return Heatmap(found.source, found.target, found.weights, f"{self.name}: {self.reads}", found.end)

    @property
    def reads(self) -> str:
        """Which layer and head `align` reads, in words."""
        heads = self.num_heads
        decoder = self.config.get("decoder") or {}
        section = decoder.get("cross_attention") or decoder.get("attention") or {}
        each = int(section.get("heads", 1)) if heads % int(section.get("heads", 1)) == 0 else 1
        head, layers = self.reading.head, f" in {heads // each} layers" if heads > each else ""
        told = f", mean of {heads} heads{layers}" if heads > 1 else ""
        told = told if head is None else f", layer {head // each + 1}, head {head % each + 1} of {each}"
        told = f"{section.get('score', '')} attention{told}".strip()
        return f"{told}, one step later" if self.reading.shift else told

    def own_words(self, found: Alignment, pair: Pair, sides: Sides) -> Alignment:
        """The user's own words instead of what the tokenizer made of them."""
        read = self.fields["source"]
        source = own(read.tokenizer, pair[0], found.source, sides[0]) if isinstance(read, Text) else found.source
        return found._replace(source=source, target=own(self.target, pair[1], found.target, sides[1]))

    def by_words(
        self, source: Sequence[int], target: Sequence[int], looks: Sequence[Float[np.ndarray, "target places"]], sides: Sides
    ) -> list[Alignment]:
        """From tokens to words, where `sides` does not keep tokens; all looks are at one pair, its end mark and padding."""
        targets, wrote = units(self.target, target, sides[1])
        field, regions = self.fields["source"], self.model.regions
        places = len(source) + field.marks if regions is None else regions.rows * regions.columns
        looks = [weights[:, :places] for weights in looks]
        if not isinstance(field, Text):  # a column for each position, or for each region of an image
            numbers = [str(place) for place in range(1, places + 1)]
            return [Alignment(numbers, targets, merge_pieces(weights, range(places), wrote)) for weights in looks]
        sources, read = units(field.tokenizer, source, sides[0])
        seen = slice(len(targets)), slice(len(sources))  # tokens of blanks alone are pieces of no word
        marked = [*read, max(read, default=-1) + 1]  # the end mark as a word of its own, past the last
        found = []
        for weights in looks:
            merged = merge_pieces(weights, marked, wrote)[seen[0]]
            found.append(Alignment(sources, targets, merged[:, seen[1]], merged[:, -1]))
        return found

    def points(self, pairs: Iterable[Pair]) -> list[list[tuple[float, float]]]:
        """Where in its image the model looked for each word of each target: the middle of the region with the largest weight,
        x and y in pixels of the file."""
        regions, field, both = self.model.regions, self.fields["source"], list(pairs)
        if regions is None or not isinstance(field, Image):
            raise UserError("this model reads no images, so there is no place in one that it looked at")
        found = list[list[tuple[float, float]]]()
        for (name, _), alignment in zip(both, self.align(both, tokens=WORDS), strict=True):
            across, down = field.shrunk(Path(name))
            middles = [regions.middle(int(place)) for place in alignment.weights.argmax(axis=1)]
            found.append([(x * across, y * down) for x, y in middles])
        return found

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


def in_one(tokenizer: Tokenizer, text: str) -> bool:
    """Whether no spaces cut the text into words."""
    return tokenizer.spaceless or (len(text.split()) == 1 and len(tokenizer.encode([text])[0]) > 1)
