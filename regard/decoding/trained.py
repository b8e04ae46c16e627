"""A trained model in use: generate, score, align."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.data.batching import pad_lists, shifted
from regard.data.links import Link, links_from_weights, merge_pieces
from regard.data.tokenizers import END, PAD, START
from regard.decoding.beam import beam_search
from regard.decoding.greedy import greedy_search
from regard.decoding.hypothesis import Found, Hypothesis
from regard.errors import UserError
from regard.models import SequenceToSequence
from regard.models.device import choose_device
from regard.models.directory import Bundle, load_model
from regard.models.interface import Steps
from regard.recipe import Decoding, parse

Pair = tuple[str, str]


class Likelihood(NamedTuple):
    """How probable a target is, given its source."""

    log_prob: float
    tokens: int  # the end mark counts


class Alignment(NamedTuple):
    """Where each target word was looked for: words of both sides, and the weights between them."""

    source: list[str]
    target: list[str]
    weights: Float[np.ndarray, "target source"]

    @property
    def links(self) -> frozenset[Link]:
        return links_from_weights(self.weights)


class Trained:
    """What `regard.load` returns."""

    def __init__(self, bundle: Bundle, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.model: SequenceToSequence = bundle.model.to(self.device).eval()
        self.source, self.target, self.decoding = bundle.source, bundle.target, bundle.decoding

    @property
    def has_attention(self) -> bool:
        return self.model.decoder.has_attention

    def generate(self, texts: Iterable[str], beam: int | None = None, length_penalty: float | None = None) -> list[str]:
        """The best output for each text, in the order given."""
        found = self.search(texts, beam=beam, length_penalty=length_penalty)
        return [hypotheses[0].text if hypotheses else "" for hypotheses in found]

    def search(
        self, texts: Iterable[str], beam: int | None = None, length_penalty: float | None = None
    ) -> list[list[Hypothesis]]:
        """All hypotheses of each text's beam, best first; none for an empty text."""
        change = {"beam": beam, "length_penalty": length_penalty}
        given = {key: value for key, value in change.items() if value is not None}
        settings = parse(Decoding, {**self.decoding.model_dump(), **given}, "decoding")
        tokens = self.source.encode(list(texts))
        results: list[list[Hypothesis]] = [[] for _ in tokens]
        for rows in batches([len(row) for row in tokens], settings.batch_tokens // settings.beam):
            for row, found in zip(rows, self.search_batch([tokens[row] for row in rows], settings), strict=True):
                results[row] = [self.read(one) for one in found]
        return results

    def read(self, found: Found) -> Hypothesis:
        return Hypothesis(self.target.decode(found.tokens), *found)

    @torch.inference_mode()
    def search_batch(self, sources: Sequence[Sequence[int]], settings: Decoding) -> list[list[Found]]:
        source, lengths = self.pad(sources)
        limits = (lengths * settings.max_ratio + 10).long().clamp(max=settings.max_length)
        step, state = self.model.start(self.model.encode(source, lengths))
        if settings.beam == 1:
            penalty = settings.length_penalty
            return greedy_search(step, state, limits=limits, start=START, end=END, length_penalty=penalty)
        return beam_search(
            step, state, limits=limits, width=settings.beam, start=START, end=END,
            length_penalty=settings.length_penalty,
        )  # fmt: skip

    def pad(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Tokens and END, padded as in training, and their lengths."""
        matrix, lengths = pad_lists(rows)
        return torch.from_numpy(matrix).to(self.device), torch.from_numpy(lengths).to(self.device)

    def score(self, pairs: Iterable[Pair]) -> list[Likelihood]:
        """log p(target | source) of each pair."""

        def read(steps: Steps, targets: Sequence[Sequence[int]], _sources: Sequence[Sequence[int]]) -> Iterator[Likelihood]:
            log_probs = self.model.decoder.logits(steps.outputs).float().log_softmax(dim=-1)
            wanted, _ = self.pad(targets)
            each = log_probs.gather(2, wanted[..., None]).squeeze(-1).masked_fill(wanted == PAD, 0.0)
            for total, target in zip(each.double().sum(dim=1).tolist(), targets, strict=True):
                yield Likelihood(total, len(target) + 1)

        return self.force(pairs, read)

    def align(self, pairs: Iterable[Pair]) -> list[Alignment]:
        """Where the model looks while it writes each target, word by word."""
        if not self.has_attention:
            raise UserError("this model has no attention, so there is nothing to look at or to align by")

        def read(steps: Steps, targets: Sequence[Sequence[int]], sources: Sequence[Sequence[int]]) -> Iterator[Alignment]:
            assert steps.weights is not None
            weights = steps.weights.float().cpu().numpy()
            for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
                yield self.by_words(source, target, weights[row, : len(target), : len(source)])

        both = list(pairs)
        return [own_words(found, pair) for found, pair in zip(self.force(both, read), both, strict=True)]

    @torch.inference_mode()
    def look_back(self, text: str) -> Alignment:
        """Which words of the source each of its words looked at while it was read: for cells that attend to their past."""
        (tokens,) = self.source.encode([text])
        found = self.model.encoder.past(torch.tensor([tokens], device=self.device)) if tokens else None
        if found is None:
            raise UserError("this encoder does not attend to what it has read; train one with cell=lstm_tape or tanh_attention")
        words = self.source.words(tokens)
        source = self.source.decode(tokens).split()
        merged = merge_pieces(found[0].float().cpu().numpy(), words, words)
        return own_words(Alignment(source, source, merged), (text, text))

    def by_words(self, source: Sequence[int], target: Sequence[int], weights: np.ndarray) -> Alignment:
        merged = merge_pieces(weights, self.source.words(source), self.target.words(target))
        return Alignment(self.source.decode(source).split(), self.target.decode(target).split(), merged)

    @torch.inference_mode()
    def force(self, pairs: Iterable[Pair], read: Callable[..., Iterator[Any]]) -> list[Any]:
        """Teacher forcing over batches of pairs; `read` turns the steps of a batch into one result a pair."""
        both = list(pairs)
        sources = self.source.encode([source for source, _ in both])
        targets = self.target.encode([target for _, target in both])
        results: list[Any] = [None] * len(both)
        sizes = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
        for rows in batches(sizes, self.decoding.batch_tokens, keep_empty=True):
            some, wanted = [sources[row] for row in rows], [targets[row] for row in rows]
            source, lengths = self.pad(some)
            words = torch.from_numpy(shifted(pad_lists(wanted)[0])).to(self.device)
            steps = self.model.decode(source, lengths, words)
            for row, result in zip(rows, read(steps, wanted, some), strict=True):
                results[row] = result
        return results


def own_words(found: Alignment, pair: Pair) -> Alignment:
    """The user's own words instead of what the tokenizer made of them, where they are as many."""
    words = [given.split() if len(given.split()) == len(side) else side for given, side in zip(pair, found[:2], strict=True)]
    return found._replace(source=words[0], target=words[1])


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
