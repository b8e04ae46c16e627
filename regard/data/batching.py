"""Batches: the padded ids of some rows of a store."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from regard.data.copies import extended_size, without_end
from regard.data.guides import dense_links
from regard.data.store import Sequences, Store
from regard.data.tokenizer import END, PAD, START, UNKNOWN

Integers = npt.NDArray[np.int64]


class Batch(NamedTuple):
    """Padded ids of some rows. PAD stands after the end only."""

    source: Integers  # [rows, longest]: tokens, END, PAD ...
    source_lengths: Integers  # with END
    target_input: Integers  # [rows, longest]: START, tokens, PAD ...
    target_output: Integers  # [rows, longest]: tokens, END, PAD ...; over the extended vocabulary where words are copied
    target_lengths: Integers  # with END
    rows: Integers  # where these pairs stand in the store
    copies: Integers | None = None  # [rows, longest source]: what copying each source token would write; PAD: nothing
    copy_size: int = 0  # of the extended vocabulary: the target's, and the most unknown words that a row has
    links: npt.NDArray[np.float32] | None = None  # [rows, longest target, longest source]: shares of each target token


def collate(store: Store, rows: npt.NDArray[Any]) -> Batch:
    rows = np.asarray(rows, np.int64)
    source, source_lengths = padded_rows(store.sources, rows)
    target_output, target_lengths = padded_rows(store.targets, rows)
    copies = None if store.copies is None else without_end(padded_rows(store.copies, rows)[0])
    vocabulary = None if copies is None else int(store.facts["target_vocabulary"])
    size = 0 if copies is None or vocabulary is None else extended_size(copies, vocabulary)
    shape = len(rows), target_output.shape[1], source.shape[1]
    links = None if store.links is None else dense_links(*store.links.gather(rows), shape)
    words = shifted(target_output, vocabulary)
    return Batch(source, source_lengths, words, target_output, target_lengths, rows, copies, size, links)


def roomy(batch: Batch, rows: int, columns: int) -> Batch:
    """The same batch with numbers of rows and columns that these divide, so that few shapes come again and again. A row more
    has nothing to say: its source is END, its target empty."""
    given = len(batch.source)
    height, source, target = up(given, rows), up(batch.source.shape[1], columns), up(batch.target_output.shape[1], columns)
    full = batch._replace(
        source=wider(batch.source, height, source),
        source_lengths=wider(batch.source_lengths, height),
        target_input=wider(batch.target_input, height, target),
        target_output=wider(batch.target_output, height, target),
        copies=None if batch.copies is None else wider(batch.copies, height, source),
        copy_size=up(batch.copy_size, columns),
        links=None if batch.links is None else wider(batch.links, height, target, source),
    )
    full.source[given:, 0], full.source_lengths[given:] = END, 1
    return full


def up(number: int, step: int) -> int:
    return -(-number // step) * step


def wider(array: npt.NDArray[Any], *shape: int) -> npt.NDArray[Any]:
    """PAD (0) all around."""
    result = np.full(shape, PAD, array.dtype)
    result[tuple(map(slice, array.shape))] = array
    return result


def padded_rows(side: Sequences, rows: Integers) -> tuple[Integers, Integers]:
    tokens, lengths = side.gather(rows)
    return pad(tokens, lengths)


def pad(tokens: npt.NDArray[Any], lengths: Integers) -> tuple[Integers, Integers]:
    """Sequences that stand one after the other -> a padded matrix with END after each, and lengths with END."""
    columns = np.arange(int(lengths.max(initial=0)) + 1)
    matrix = np.full((len(lengths), len(columns)), PAD, np.int64)
    matrix[columns < lengths[:, None]] = tokens
    matrix[np.arange(len(lengths)), lengths] = END
    return matrix, lengths + 1


def pad_lists(sequences: Sequence[Sequence[int]]) -> tuple[Integers, Integers]:
    """The same for ids that are in no store, such as sentences to translate."""
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    return pad(np.array([token for sequence in sequences for token in sequence], np.int64), lengths)


def shifted(output: Integers, vocabulary: int | None = None) -> Integers:
    """What the decoder reads when it should say `output`: START, then all but the last; END is never read.

    A word past its vocabulary, which it copied, it reads as UNKNOWN.
    """
    begin = np.full((len(output), 1), START, np.int64)
    earlier = output[:, :-1] if vocabulary is None else np.where(output[:, :-1] < vocabulary, output[:, :-1], UNKNOWN)
    return np.concatenate([begin, np.where(earlier == END, PAD, earlier)], axis=1)
