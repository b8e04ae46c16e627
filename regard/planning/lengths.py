"""How long the rows of a recipe are."""

from collections.abc import Callable, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from regard.corpora import CORPORA
from regard.corpora.corpus import rows
from regard.data.fields import FIELDS, configure_fields
from regard.data.readers import read_rows
from regard.data.tokenizers import CodeTokenizer
from regard.errors import UserError
from regard.models import MODELS, ModelConfig
from regard.planning.example import Lengths
from regard.recipe import Data, choose

SAMPLE = 10_000  # rows that are read
USUAL = Lengths()
UNITS: dict[str, Callable[[str], int]] = {
    "character": len,
    "byte": lambda text: len(text.encode()),
    "word": lambda text: len(text.split()),
    "code": lambda text: len(CodeTokenizer.split(text)),
}


class Measured(NamedTuple):
    lengths: Lengths
    how: str


def lengths_of(data: Data, config: ModelConfig, source: int | None, target: int | None) -> Measured:
    """As given; of the recipe's data where they can be read; or those of a usual sentence."""
    fields, written = configure_fields(data, config.columns), MODELS[config.kind].writes
    read = next((name for name in fields if name != written), written)
    found = Measured(Lengths(source, target), "as given") if source and target else sampled(data, fields, read, written)
    how = f"as given; the other: {found.how}" if (source is None) != (target is None) else found.how
    return Measured(as_fields_say(fields, read, written, source or found.lengths.source, target or found.lengths.target), how)


def as_fields_say(fields: Mapping[str, Any], read: str, written: str, source: int, target: int) -> Lengths:
    """What has one value per row has length 1, and a row of tags is as long as what they are tags of, its end mark aside."""
    reads, writes = (FIELDS[fields[name].kind] for name in (read, written))
    source = 1 if reads.form == "single" else source
    if writes.like == read:
        return Lengths(source, max(1, source - reads.marks + writes.marks))
    return Lengths(source, 1 if writes.form == "single" else target)


def sampled(data: Data, fields: Mapping[str, Any], read: str, written: str) -> Measured:
    """The mean of texts; other columns are as long as usual."""
    cut = {name: fields[name].tokenizer for name in (read, written) if hasattr(fields[name], "tokenizer")}
    kinds = {name: tokenizer.kind if tokenizer.file is None else tokenizer.file.name for name, tokenizer in cut.items()}
    rows = sample(data, list(kinds))
    if not rows:
        return Measured(USUAL, "a usual sentence, for the recipe names no data that can be read")
    units = {name: kind if kind in UNITS else "word" for name, kind in kinds.items()}
    means = {
        name: round(sum(map(UNITS[units[name]], texts)) / len(texts)) + 1
        for name, texts in zip(kinds, zip(*rows, strict=True), strict=True)
    }
    pieces = sorted({kind for kind in kinds.values() if kind not in UNITS})
    told = f"; pieces of words ({', '.join(pieces)}) are more than words" if pieces else ""
    counted = " or ".join(f"{unit}s" for unit in dict.fromkeys(units.values()))
    lengths = Lengths(means.get(read, USUAL.source), means.get(written, USUAL.target))
    return Measured(lengths, f"{counted} and the end mark, the mean of {len(rows):,} pairs{told}")


def sample(data: Data, names: list[str]) -> list[tuple[str, ...]]:
    """The values of these columns in the first rows; none where there are no such data."""
    if not names:
        return []
    if data.corpus is not None:
        drawn = rows(choose(CORPORA, data.corpus.name, "corpus"), data.corpus.seed, 1000)["train"]
        return [tuple(getattr(pair, name) for name in names) for pair in drawn] if set(names) <= {"source", "target"} else []
    if data.train is None or not set(names) <= data.train.named.keys() or not all(map(Path.exists, data.train.files)):
        return []
    blocks = (zip(*(block.columns[name] for name in names), strict=True) for block in read_rows(data.train))
    return list(islice(chain.from_iterable(blocks), SAMPLE))


def check(lengths: Lengths, batch_tokens: int) -> None:
    if max(lengths) > batch_tokens:
        raise UserError(f"a pair of {max(lengths)} tokens does not fit a batch of {batch_tokens}: raise data.batch_tokens")
