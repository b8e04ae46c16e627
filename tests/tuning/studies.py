"""Small studies: a few rows, a tiny model, nine validations; and searches whose trials are not trained at all."""

import random

from regard.overrides import override
from regard.recipe import Recipe, parse

TINY = """
about: Words into capitals
data:
  tokenizer: {kind: word}
  batch_tokens: 64
model:
  encoder: {kind: recurrent, cell: gru, embedding_size: 8, hidden_size: 8, layers: 1, dropout: 0.2}
  decoder: {kind: recurrent, cell: gru, embedding_size: 8, hidden_size: 16, layers: 1, attention: {score: additive, size: 8}, dropout: 0.2}
training: {updates: 9, learning_rate: 0.01, warmup: 2, schedule: cosine, validate_every: 1, validate_by: wer, save_every: 1,
  log_every: 3, average: 2, label_smoothing: 0.0, patience: null}
"""  # noqa: E501
WORDS = ["amicus", "bellum", "canis", "domus", "equus", "hortus", "insula", "liber"]


def write_table(path, rows=40, seed=1):
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 4))) for _ in range(rows)]
    path.write_text("".join(f"{text}\t{text.upper()}\n" for text in texts))
    return path


def facts_without_time(facts):
    """What a study found, without what depends on the clock or on its folder."""
    gone = ("seconds", "ending", "next", "study", "run")
    if isinstance(facts, dict):
        return {key: facts_without_time(value) for key, value in facts.items() if key not in gone}
    return [facts_without_time(one) for one in facts] if isinstance(facts, list) else facts


def recipe_of(values, *overrides):
    return parse(Recipe, override(values, overrides))
