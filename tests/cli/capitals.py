"""Words into capitals: a task that small models learn in seconds, and its recipe and files."""

import random

TINY = [
    "data.tokenizer.kind=word", "data.batch_tokens=256", "training.updates=4", "model.encoder.embedding_size=8",
    "model.encoder.hidden_size=8", "model.decoder.embedding_size=8", "model.decoder.hidden_size=8",
    "model.encoder.dropout=0", "model.decoder.dropout=0",
]  # fmt: skip
RECIPE = """
about: Words into capitals, in the order they come
data:
  train: {{source: {0}/train.source, target: {0}/train.target}}
  valid: {{source: {0}/short.source, target: {0}/short.target}}
  test:
    short: {{source: {0}/short.source, target: {0}/short.target, alignment: {0}/short.align}}
    long: {{source: {0}/long.source, target: {0}/long.target}}
  tokenizer: {{kind: word}}
  batch_tokens: 400
model:
  encoder: {{cell: gru, embedding_size: 24, hidden_size: 24, dropout: 0}}
  decoder: {{cell: gru, embedding_size: 24, hidden_size: 32, attention: {{score: additive, size: 24}}, dropout: 0}}
training: {{updates: 120, learning_rate: 0.02, warmup: 10, schedule: cosine, validate_every: 120, label_smoothing: 0.0}}
"""
WORDS = ["amicus", "bellum", "canis", "domus", "equus", "fīnis", "gladius", "hortus", "insula", "liber"]


def sentences(seed, count, longest):
    chance = random.Random(seed)
    return [chance.choices(WORDS, k=chance.randint(1, longest)) for _ in range(count)]


def write_pairs(folder, name, rows):
    texts = [" ".join(row) for row in rows]
    write_lines(folder / f"{name}.source", texts)
    write_lines(folder / f"{name}.target", map(str.upper, texts))
    write_lines(folder / f"{name}.align", (" ".join(f"{i}-{i}" for i in range(len(row))) for row in rows))


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
