"""Training that starts with vectors of words which others have learned."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import nn

from regard.data.fields import Field, Spelled, Text
from regard.data.tokenizers import SPECIALS, WordTokenizer
from regard.data.word_vectors import read_word_vectors
from regard.errors import UserError
from regard.models.inputs import WordsAndCharacters
from regard.recipe import Training

Say = Callable[[str], None]
PARTS = {"source": "encoder", "target": "decoder"}  # which part of a model has the table of a column's words


def start_vectors(model: nn.Module, fields: Mapping[str, Field], training: Training, begun: bool, say: Say) -> None:
    """Fill the tables that `training.vectors` names, unless the run has begun and has them; freeze them if asked to."""
    for column, path in training.vectors.items():
        table, words = table_of(model, column), words_of(fields.get(column), column)
        if not begun:
            say(fill(table, words, path, column))
        if training.freeze_vectors:
            table.weight.requires_grad = False


def table_of(model: nn.Module, column: str) -> nn.Embedding:
    embed = getattr(getattr(model, PARTS.get(column, ""), None), "embed", None)
    table = embed.words if isinstance(embed, WordsAndCharacters) else embed
    if not isinstance(table, nn.Embedding):
        raise UserError(f"training.vectors.{column}: the model has no table of words for a column of this name")
    return table


def words_of(field: Field | None, column: str) -> list[str]:
    """After the special tokens, in the order of their numbers."""
    words = field.words if isinstance(field, Spelled) else field.tokenizer if isinstance(field, Text) else None
    if not isinstance(words, WordTokenizer):
        raise UserError(f"training.vectors.{column}: word vectors are for words: set data.tokenizer.kind=word")
    return words.symbols


@torch.no_grad()
def fill(table: nn.Embedding, words: list[str], path: Path, column: str) -> str:
    """Vectors of words as they are written, or else of their small letters; all other words vary as much as these do."""
    found = read_word_vectors(path, {*words, *map(str.lower, words)})
    if found.size != table.embedding_dim:
        raise UserError(
            f"{path}: vectors of {found.size} elements, where the model's words have {table.embedding_dim}: change "
            f"embedding_size (or size) of the model's {PARTS[column]} by {found.size - table.embedding_dim:+d}"
        )
    known = {at: found.vectors.get(word, found.vectors.get(word.lower())) for at, word in enumerate(words, len(SPECIALS))}
    rows = {at: torch.from_numpy(vector) for at, vector in known.items() if vector is not None}
    if not rows:
        raise UserError(f"{path}: none of the {len(words):,} words of the {column} has a vector there; is it another language?")
    vectors = torch.stack(list(rows.values()))
    table.weight.normal_(std=float(vectors.std()))
    table.weight[torch.tensor(list(rows), device=table.weight.device)] = vectors.to(table.weight)
    exact = sum(word in found.vectors for word in words)
    unread = f"; {found.unread:,} lines that are not UTF-8 were passed over" if found.unread else ""
    share = f"{len(rows):,} of {len(words):,} words ({len(rows) / len(words):.1%})"
    return f"word vectors of the {column}: {share} have one in {path}, {len(rows) - exact:,} of them in small letters{unread}"
