"""Outputs written by CTranslate2: the same search with the same weights, in C++."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.data.fields import Field
from regard.decoding.hypothesis import END_MARK, LIMIT, Found
from regard.decoding.ranking import NORMALISATIONS
from regard.decoding.shortlist import Shortlist
from regard.errors import UserError
from regard.exchange.vocabulary import names_of
from regard.recipe import Decoding

# Settings that it has as we have them; the others are asked for in vain
SHARED = {"beam", "length_penalty", "length_norm", "stop", "max_length", "max_ratio", "batch_tokens"}


def foreign_setting(settings: Decoding) -> str | None:
    """What of these it does not have, and what to ask for instead."""
    if settings.cache not in ("auto", "dynamic"):
        return "it has no cache as it is meant here"
    others = [key for key in Decoding.model_fields if key not in {*SHARED, "groups", "diversity", "cache"}]
    for key in others:
        if getattr(settings, key) != Decoding.model_fields[key].default:
            return f"it has no {key} as it is meant here"
    if settings.groups > 1:
        return "it has no groups of hypotheses"
    if settings.beam > 1 and settings.length_penalty and settings.length_norm != "power":
        return "it ranks by log p / length ** penalty: set length_norm=power, or length_penalty=0"
    if settings.beam > 1 and settings.length_penalty and settings.stop != "first":
        return "its beam ends when as many outputs have ended as it is wide: set stop=first, length_penalty=0 or beam=1"
    return None


class Translator:
    """`ctranslate2.Translator` as a search of ours. It is opened at the first search: its threads do not survive a fork."""

    def __init__(
        self, directory: Path, precision: str, fields: Mapping[str, Field], places: tuple[int, int], strict: bool = True
    ) -> None:
        self.directory, self.precision, self.places, self.strict = directory, precision, places, strict
        self.read, self.written = names_of(fields["source"]), names_of(fields["target"])
        self.numbers = {name: number for number, name in enumerate(self.written)}
        self.opened: Any = None
        self.shortlist: Shortlist | None = None

    def problem(
        self, settings: Decoding, more: Mapping[str, object], lengths: Sequence[int] = (), limits: Sequence[int] = ()
    ) -> str | None:
        """Why it cannot write these. `more`: what else is asked, by its name."""
        if (problem := foreign_setting(settings)) is not None:
            return problem
        if max(lengths, default=0) > self.places[0] or max(limits, default=0) > self.places[1]:
            return f"it has places for inputs of {self.places[0]} tokens and outputs of {self.places[1]}"
        return next((f"it has no {name} as they are meant here" for name, one in more.items() if one), None)

    def takes(self, *asked: Any) -> bool:
        """Whether it writes these; if it was asked for by name, it has to."""
        if (problem := self.problem(*asked)) is not None and self.strict:
            raise UserError(f"CTranslate2 cannot write this: {problem}; or take --engine auto, which then does without it")
        return problem is None

    def open(self) -> Any:
        import ctranslate2

        if self.opened is None:
            options: dict[str, Any] = {"inter_threads": 1, "intra_threads": torch.get_num_threads()}
            if self.shortlist is not None:
                files = {file.name: file.read_bytes() for file in self.directory.iterdir() if file.is_file()}
                options["files"] = files | {"vmap.txt": self.mapping(self.shortlist)}
            self.opened = ctranslate2.Translator(str(self.directory), "cpu", compute_type=self.precision, **options)
        return self.opened

    def mapping(self, shortlist: Shortlist) -> bytes:
        """Its vocabulary map: a word, a tab, the words that may then be written; without a word those that always may."""
        rows = [("", shortlist.common), *zip(self.read, shortlist.likely, strict=True)]
        lines = (f"{word}\t{' '.join(self.written[token] for token in sorted({*tokens.tolist()}))}" for word, tokens in rows)
        return ("\n".join(lines) + "\n").encode()

    def search(self, sources: Sequence[Sequence[int]], settings: Decoding, limits: Sequence[int]) -> list[list[Found]]:
        """`limits`: how many tokens each output may have, its end mark included. One number is for a whole batch there: an
        output that is longer than its own is cut, as greedy search would, or searched for again."""
        found = self.batch(sources, settings, max(limits))
        for row, limit in enumerate(limits):
            if any(len(one.tokens) > limit or (one.end == END_MARK and len(one.tokens) == limit) for one in found[row]):
                found[row] = self.batch([sources[row]], settings, limit)[0]
        return found

    def batch(self, sources: Sequence[Sequence[int]], settings: Decoding, limit: int) -> list[list[Found]]:
        texts = [[self.read[token] for token in source] for source in sources]
        found = self.open().translate_batch(
            texts, beam_size=settings.beam, num_hypotheses=settings.beam, length_penalty=0.0 if settings.beam == 1 else
            settings.length_penalty, max_decoding_length=limit, min_decoding_length=0, max_input_length=0, max_batch_size=0,
            return_scores=True, use_vmap=self.shortlist is not None,
        )  # fmt: skip
        return [[self.one(*each, settings, limit) for each in zip(one.hypotheses, one.scores, strict=True)] for one in found]

    def one(self, names: Sequence[str], score: float, settings: Decoding, limit: int) -> Found:
        tokens = [self.numbers[name] for name in names]
        end = END_MARK if len(tokens) < limit else LIMIT
        norm = NORMALISATIONS[settings.length_norm](len(tokens) + (end == END_MARK), settings.length_penalty)
        if settings.beam == 1:
            return Found(tokens, score, score / norm, end)
        return Found(tokens, score * norm, score, end)
