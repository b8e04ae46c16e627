"""A trained model in use: generate, score, align."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.batching import pad_lists, shifted
from regard.data.copies import Copied, copied, extended_rows, extended_size, without_end
from regard.data.links import merge_pieces
from regard.data.tokenizers import END, PAD, START
from regard.decoding.beam import beam_search
from regard.decoding.greedy import greedy_search
from regard.decoding.hypothesis import Found, Hypothesis
from regard.decoding.ranking import Coverage
from regard.decoding.reading import Alignment as Alignment
from regard.decoding.reading import Pair as Pair
from regard.decoding.reading import own_words, read_weights
from regard.decoding.sampling import Sampling, chances_of, sample
from regard.errors import UserError
from regard.models import Model
from regard.models.device import choose_device
from regard.models.directory import Bundle, Reading, load_model
from regard.models.interface import Copies, Steps
from regard.recipe import Decoding, parse


class Likelihood(NamedTuple):
    """How probable a target is, given its source."""

    log_prob: float
    tokens: int  # the end mark counts


class Trained:
    """What `regard.load` returns."""

    def __init__(self, bundle: Bundle, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.model: Model = bundle.model.to(self.device).eval()
        self.source, self.target, self.decoding = bundle.source, bundle.target, bundle.decoding
        self.reading = bundle.reading  # how `align` reads the attention, unless it is told

    @property
    def has_attention(self) -> bool:
        return self.model.decoder.has_attention

    @property
    def copying(self) -> bool:
        return self.model.decoder.copies_words

    def generate(
        self,
        texts: Iterable[str],
        beam: int | None = None,
        length_penalty: float | None = None,
        length_norm: str | None = None,
        coverage_penalty: float | None = None,
    ) -> list[str]:
        """The best output for each text, in the order given."""
        found = self.search(texts, beam, length_penalty, length_norm, coverage_penalty)
        return [hypotheses[0].text if hypotheses else "" for hypotheses in found]

    def search(
        self,
        texts: Iterable[str],
        beam: int | None = None,
        length_penalty: float | None = None,
        length_norm: str | None = None,
        coverage_penalty: float | None = None,
    ) -> list[list[Hypothesis]]:
        """All hypotheses of each text's beam, best first; none for an empty text."""
        return self.answer(texts, self.settings(beam, length_penalty, length_norm, coverage_penalty))

    def sample(
        self, texts: Iterable[str], count: int = 1, sampling: Sampling | None = None, length_penalty: float | None = None
    ) -> list[list[Hypothesis]]:
        """`count` outputs of each text in the order they were drawn: a function of the seed and the text alone."""
        return self.answer(texts, self.settings(beam=count, length_penalty=length_penalty), sampling or Sampling())

    def settings(
        self,
        beam: int | None = None,
        length_penalty: float | None = None,
        length_norm: str | None = None,
        coverage_penalty: float | None = None,
    ) -> Decoding:
        """The model's own, with what is given instead."""
        change = {
            "beam": beam,
            "length_penalty": length_penalty,
            "length_norm": length_norm,
            "coverage_penalty": coverage_penalty,
        }
        given = {key: value for key, value in change.items() if value is not None}
        return parse(Decoding, {**self.decoding.model_dump(), **given}, "decoding")

    def answer(self, texts: Iterable[str], settings: Decoding, sampling: Sampling | None = None) -> list[list[Hypothesis]]:
        lines = list(texts)
        tokens, offers = self.source.encode(lines), self.offers(lines)
        refuse("texts", self.problems(tokens))
        results: list[list[Hypothesis]] = [[] for _ in tokens]
        for rows in batches([len(row) for row in tokens], settings.batch_tokens // settings.beam):
            copies = self.copies([offers[row] for row in rows])
            found = self.search_batch([tokens[row] for row in rows], settings, copies, sampling)
            for row, each in zip(rows, found, strict=True):
                results[row] = [self.read(one, offers[row].extra) for one in each]
        return results

    def too_long(self, sources: Sequence[str], targets: Sequence[str] | None = None) -> dict[int, str]:
        """The texts, or pairs, that this model has no places for, by their index from 0, and what is wrong with each."""
        if not any(self.model.limits):
            return {}
        return self.problems(self.source.encode(sources), None if targets is None else self.target.encode(targets))

    def problems(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]] | None = None) -> dict[int, str]:
        limits = self.model.limits
        counts = zip(map(len, sources), [0] * len(sources) if targets is None else map(len, targets), strict=True)
        found = ((index, limits.problem(*each)) for index, each in enumerate(counts if any(limits) else ()))
        return {index: problem for index, problem in found if problem is not None}

    def read(self, found: Found, extra: Sequence[bytes] = ()) -> Hypothesis:
        return Hypothesis(self.target.decode(found.tokens, extra), *found)

    def offers(self, texts: Sequence[str]) -> list[Copied]:
        """What each text offers to be copied; nothing to a model that does not copy."""
        if not self.copying:
            return [Copied([], [])] * len(texts)
        return [copied(surfaces, self.target) for surfaces in self.source.surfaces(texts)]

    def copies(self, offers: Sequence[Copied]) -> Copies | None:
        """The offers of a batch, for a model that copies."""
        if not self.copying:
            return None
        words = without_end(pad_lists([offer.ids for offer in offers])[0])
        return Copies(torch.from_numpy(words).to(self.device), extended_size(words, len(self.target)))

    @torch.inference_mode()
    def search_batch(
        self,
        sources: Sequence[Sequence[int]],
        settings: Decoding,
        copies: Copies | None = None,
        sampling: Sampling | None = None,
    ) -> list[list[Found]]:
        source, lengths = self.pad(sources)
        limits, both = self.limits(lengths, settings), self.model.limits.both
        if both is not None and int(lengths.max() + limits.max()) > both.places and int(lengths.min()) < int(lengths.max()):
            return self.search_alike(sources, settings, sampling)  # a short source's output may begin behind the longest one
        memory = self.model.encode(source, lengths, copies)
        step, state = self.model.start(memory)
        ways: dict[str, Any] = {"limits": limits, "start": START, "end": END, "length_penalty": settings.length_penalty}
        ways["length_norm"] = settings.length_norm
        if sampling is not None:
            chances = chances_of(sources, settings.beam, int(limits.max()), sampling.seed).to(self.device)
            return sample(step, state, chances=chances, sampling=sampling, **ways)
        coverage = Coverage(settings.coverage_penalty, memory.visible) if settings.coverage_penalty else None
        if settings.beam == 1:
            return greedy_search(step, state, coverage=coverage, **ways)
        return beam_search(step, state, width=settings.beam, coverage=coverage, **ways)

    def search_alike(
        self, sources: Sequence[Sequence[int]], settings: Decoding, sampling: Sampling | None
    ) -> list[list[Found]]:
        """Sources of one length at a time."""
        found: dict[int, list[Found]] = {}
        for length in sorted(set(map(len, sources))):
            rows = [row for row, source in enumerate(sources) if len(source) == length]
            some = self.search_batch([sources[row] for row in rows], settings, sampling=sampling)
            found |= zip(rows, some, strict=True)
        return [found[row] for row in range(len(sources))]

    def limits(self, lengths: Int[Tensor, "batch"], settings: Decoding) -> Int[Tensor, "batch"]:
        """How many tokens an output may have, its end mark included; `lengths` count that of the source."""
        most, (_, target, both) = settings.max_length, self.model.limits
        limits = (lengths * settings.max_ratio + 10).long().clamp(max=min(most, most if target is None else target.places))
        return limits if both is None else limits.minimum(both.places - lengths)

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Tokens and END, padded as in training, and their lengths."""
        matrix, lengths = pad_lists(rows)
        return torch.from_numpy(matrix).to(self.device), torch.from_numpy(lengths).to(self.device)

    def score(self, pairs: Iterable[Pair]) -> list[Likelihood]:
        """log p(target | source) of each pair."""

        def read(steps: Steps, targets: Sequence[Sequence[int]], _sources: Sequence[Sequence[int]]) -> Iterator[Likelihood]:
            log_probs = self.model.decoder.logits(steps).float().log_softmax(dim=-1)
            wanted, _ = self.pad(targets)
            each = log_probs.gather(2, wanted[..., None]).squeeze(-1).masked_fill(wanted == PAD, 0.0)
            for total, target in zip(each.double().sum(dim=1).tolist(), targets, strict=True):
                yield Likelihood(total, len(target) + 1)

        return self.force(pairs, read)

    def align(self, pairs: Iterable[Pair], reading: Reading | None = None) -> list[Alignment]:
        """Where the model looks for each word of each target, by its own reading of the attention or by another."""
        return [found for (found,) in self.align_by(pairs, [reading or self.reading])]

    def align_by(self, pairs: Iterable[Pair], readings: Sequence[Reading]) -> list[list[Alignment]]:
        """The alignments of each pair by several readings of the same looks."""

        def read(steps: Steps, targets: Sequence[Sequence[int]], sources: Sequence[Sequence[int]]) -> Iterator[list[Alignment]]:
            assert steps.weights is not None
            looks = [read_weights(steps.weights, reading).float().cpu().numpy() for reading in readings]
            for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
                yield self.by_words(source, target, [weights[row, : len(target), : len(source)] for weights in looks])

        both = list(pairs)
        found = self.force(both, read, look=True)
        return [[own_words(one, pair) for one in each] for each, pair in zip(found, both, strict=True)]

    @property
    def num_heads(self) -> int:
        """How many heads the attention has, over all layers."""
        found = self.force([("", "")], lambda steps, *_: iter([steps.weights.shape[1]]), look=True)
        return int(found[0])

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
    def force(self, pairs: Iterable[Pair], read: Callable[..., Iterator[Any]], look: bool = False) -> list[Any]:
        """Teacher forcing over batches of pairs; `read` turns the steps of a batch into one result a pair."""
        if look and not self.has_attention:
            raise UserError("this model has no attention, so there is nothing to look at or to align by")
        both = list(pairs)
        sources, targets, offers = self.tokens(both)
        refuse("pairs", self.problems(sources, targets))
        results: list[Any] = [None] * len(both)
        sizes = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for rows in batches(sizes, self.decoding.batch_tokens, keep_empty=True):
            some, wanted = [sources[row] for row in rows], [targets[row] for row in rows]
            source, lengths = self.pad(some)
            words = torch.from_numpy(shifted(pad_lists(wanted)[0], len(self.target))).to(self.device)
            steps = self.model.decode(source, lengths, words, self.copies([offers[row] for row in rows]), look)
            for row, result in zip(rows, read(steps, wanted, some), strict=True):
                results[row] = result
        return results

    def tokens(self, pairs: Sequence[Pair]) -> tuple[list[list[int]], list[list[int]], list[Copied]]:
        """Of known pairs: sources, targets (over the extended vocabulary if the model copies), and what is offered."""
        sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
        if not self.copying:
            return self.source.encode(sources), self.target.encode(targets), self.offers(sources)
        offers, extended = extended_rows(sources, targets, self.source, self.target)
        return self.source.encode(sources), extended, offers


def refuse(what: str, problems: dict[int, str]) -> None:
    for index, problem in problems.items():
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise UserError(f"{what}[{index}]{more}: {problem}; `too_long` tells which")


def batches(lengths: Sequence[int], budget: int, keep_empty: bool = False) -> Iterator[list[int]]:
    """Rows of like length together, the longest first; rows without tokens are left out unless they are asked for."""
    order = sorted((row for row in range(len(lengths)) if lengths[row] or keep_empty), key=lambda row: -lengths[row])
    while order:
        count = max(1, budget // (lengths[order[0]] + 1))
        yield order[:count]
        order = order[count:]


def load(path: str | Path, device: str = "auto") -> Trained:
    """A run or a model directory, ready for use."""
    return Trained(load_model(Path(path)), choose_device(device))
